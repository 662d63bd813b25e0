"""Logged samples as lines of the feasign or slot format (docs/formats/text.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from elasticctr.errors import ConfigError
from elasticctr.serve.feedback.log import LoggedRequest


class SampleLines:
    """If `format` or `model` is None, the first request decides it."""

    def __init__(self, format: str | None, model: str | None, label: str) -> None:
        if format not in (None, "feasign", "slot"):
            raise ConfigError(f"format {format!r} must be feasign or slot")
        self.format = format
        self.model = model
        self._is_model_given = model is not None
        self._label = _check(label)
        self._checked: set[str] = set()

    def takes(self, request: LoggedRequest) -> bool:
        """Whether the request is for the model. Raises ConfigError for a second model if none was chosen."""
        if self.model is None:
            self.model = request.model
        if request.model != self.model and not self._is_model_given:
            raise ConfigError(f"the log has requests of {self.model!r} and of {request.model!r}; name one with --model")
        return request.model == self.model

    def features(self, request: LoggedRequest) -> list[str]:
        """For each sample, its line without the label."""
        has_dense = any(sample.dense for sample in request.samples)
        if self.format is None:
            self.format = "slot" if has_dense else "feasign"
        if self.format == "feasign" and has_dense:
            name = next(iter(request.samples[0].dense))
            raise ConfigError(
                f"the feasign format cannot hold dense slots, but the log has some ({name!r}); use --format slot"
            )
        # Shared values are formatted once for all candidates.
        shared = self._texts(request.shared)
        shared_text = " ".join(shared.values())
        lines = []
        for sample in request.samples:
            own = self._texts(sample.slots)
            sparse = [shared_text, *own.values()] if shared.keys().isdisjoint(own) else list((shared | own).values())
            dense = [
                f"{self._name(name)}:{v!r}"
                for name, values in sample.dense.items()
                if not _is_missing(values)
                for v in values
            ]
            lines.append(" ".join(filter(None, dense + sparse)))
        return lines

    def line(self, features: str, is_clicked: bool) -> bytes:
        head = f"1 {is_clicked:d}" if self.format == "feasign" else f"{self._label}:{is_clicked:d}"
        return f"{head} {features}\n".encode() if features else f"{head}\n".encode()

    def _texts(self, slots: dict[str, list[int]]) -> dict[str, str]:
        """The values of each slot as text of the format."""
        if self.format == "feasign":
            return {name: " ".join([f"{v}:{name}" for v in values]) for name, values in self._checked_items(slots)}
        return {name: " ".join([f"{name}:{v}" for v in values]) for name, values in self._checked_items(slots)}

    def _checked_items(self, slots: dict[str, list[int]]) -> Iterable[tuple[str, list[int]]]:
        if not self._checked.issuperset(slots):
            for name in slots:
                self._name(name)
        return slots.items()

    def _name(self, name: str) -> str:
        if name not in self._checked:
            self._checked.add(_check(name))
        return name


def _is_missing(values: list[float]) -> bool:
    """Whether the number is missing: slots with buckets mark that as -0.0. The line then omits it."""
    return all(v == 0 and math.copysign(1.0, v) < 0 for v in values)


def _check(name: str) -> str:
    if ":" in name or name.split() != [name]:
        raise ConfigError(f"slot name {name!r} has a blank or a colon, which text formats do not allow")
    return name
