"""Loads the dense part of a checkpoint into a model, with a clear error if they do not fit."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from elasticctr.errors import FailedPrecondition


def load_dense(model: nn.Module, state: Mapping[str, Tensor], source: str = "the checkpoint") -> None:
    """Copies `state` into `model`. Raises FailedPrecondition, with nothing changed, unless names and shapes agree."""
    own = model.state_dict()
    problems = [
        f"{name} is {list(state[name].shape)} there but {list(own[name].shape)} in the model"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    problems += [f"{name} {list(own[name].shape)} is missing there" for name in own if name not in state]
    problems += [f"{name} {list(state[name].shape)} is not in the model" for name in state if name not in own]
    if problems:
        shown = "; ".join(problems[:8]) + (f"; and {len(problems) - 8} more" if len(problems) > 8 else "")
        raise FailedPrecondition(
            f"the dense part of {source} does not fit the model: {shown}. "
            "Use the schema and model settings it was trained with, or start a new run"
        )
    model.load_state_dict(dict(state))
