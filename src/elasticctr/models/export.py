"""Writes a model as ONNX, without the sparse lookup: it reads pooled rows and returns logits and scores.

Inputs: `pooled` [B, pooled width], `dense` [B, dense dims], and per sequence slot `seq_<slot>` [B, max values, dim]
with `seq_<slot>_lengths` [B] int64; inputs that the model lacks are omitted. Outputs: `logits` and `scores`, both
[B] or [B, labels]. The metadata entry `elasticctr.spec` holds the input spec as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from elasticctr.errors import ConfigError, InternalError
from elasticctr.models.inputs import Inputs, InputSpec, Sequence
from elasticctr.models.model import Model, evaluating

SPEC_KEY = "elasticctr.spec"
MODEL_KEY = "elasticctr.model"


class _Served(nn.Module):
    """The model as a function of plain tensors, in the order of `input_names`."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        spec = self.model.spec
        rest = list(tensors)
        parts = [rest.pop(0) for width in (spec.pooled_width, spec.dense_dim) if width > 0]
        sequences = {s.name: Sequence(rest.pop(0), rest.pop(0)) for s in spec.sequences}
        if parts:
            flat = torch.cat(parts, dim=1)
        else:
            first = next(iter(sequences.values())).values
            flat = first.new_zeros(first.shape[0], 0)
        logits = self.model(Inputs(spec, flat, sequences))
        return logits, torch.sigmoid(logits)


def input_names(spec: InputSpec) -> list[str]:
    """The names of the graph's inputs, in order."""
    names = ["pooled"] if spec.pooled_width > 0 else []
    names += ["dense"] if spec.dense_dim > 0 else []
    for sequence in spec.sequences:
        names += [f"seq_{sequence.name}", f"seq_{sequence.name}_lengths"]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            f"two inputs of the exported model would be named {twice!r}; rename one of the sequence slots"
        )
    return names


def export_onnx(model: Model, path: str | Path, *, optimize: bool = True) -> None:
    """Writes `model` to `path`, completely or not at all. The model is not changed.

    Without `optimize`, every parameter stays a separate initializer, named `model.` plus its name in the state dict.
    """
    path = Path(path)
    names = input_names(model.spec)
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with evaluating(model), _quiet():
            program = torch.onnx.export(
                _Served(model).eval(),
                tuple(_examples(model.spec)),
                dynamo=True,
                verbose=False,
                optimize=optimize,
                input_names=names,
                output_names=["logits", "scores"],
                dynamic_shapes=(tuple({0: torch.export.Dim("batch")} for _ in names),),
            )
    except Exception as e:
        raise ConfigError(
            f"model {model.name!r} cannot be exported to ONNX: {_first_line(e)}. forward must work for any batch size "
            "without Python branches on tensor values"
        ) from e
    if program is None:
        raise InternalError(f"model {model.name!r}: torch.onnx.export returned nothing")
    proto = program.model_proto
    for key, value in ((MODEL_KEY, model.name), (SPEC_KEY, json.dumps(dataclasses.asdict(model.spec), sort_keys=True))):
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    with _told(path):
        _write(path, proto.SerializeToString())


def _examples(spec: InputSpec) -> Iterator[Tensor]:
    # Not 0 or 1, which the tracer treats as constants.
    batch = 2
    for width in (spec.pooled_width, spec.dense_dim):
        if width > 0:
            yield torch.zeros(batch, width)
    for sequence in spec.sequences:
        yield torch.zeros(batch, sequence.max_values, sequence.dim)
        yield torch.ones(batch, dtype=torch.int64)


@contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _first_line(error: BaseException) -> str:
    cause = error.__cause__ or error
    return next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise InternalError(
            f"{path}: cannot be written: {e.strerror or e}; free some space or choose another path"
        ) from e


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
