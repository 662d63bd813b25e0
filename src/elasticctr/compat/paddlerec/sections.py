"""A section of a PaddleRec file while it is translated: every key is taken, ignored for a reason, or an error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from elasticctr.errors import ConfigError

_MISSING = object()


@dataclass(frozen=True, slots=True)
class Note:
    """A key that has no effect here, or another effect than in PaddleRec."""

    key: str
    text: str


class Section:
    """The keys of one mapping. `name` is how messages refer to it, for example `runner`."""

    def __init__(self, values: Mapping[Any, Any], name: str, source: str) -> None:
        self._values = {str(key): value for key, value in values.items()}
        self._name = name
        self._source = source
        self._known: set[str] = set()
        self.notes: list[Note] = []

    def text(self, key: str, default: str = "") -> str:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self.error(key, f"expected text, found {_describe(value)}")
        return str(value)

    def integer(self, key: str, default: int) -> int:
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(key, f"expected a whole number that is not negative, found {_describe(value)}")
        return value

    def number(self, key: str, default: float) -> float:
        value = self._take(key, default)
        if isinstance(value, str):  # YAML reads 1e-3 as text
            with suppress(ValueError):
                value = float(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(key, f"expected a number, found {_describe(value)}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self._take(key, default)
        if value not in (0, 1):
            raise self.error(key, f"expected true or false, found {_describe(value)}")
        return bool(value)

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        value = self.text(key, default)
        for choice in choices:
            if choice.lower() == value.lower():
                return choice
        raise self.error(key, f"{value!r} is not one of {', '.join(choices)}{_suggest(value, choices)}")

    def integers(self, key: str) -> list[int] | None:
        value = self._take(key, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
            raise self.error(key, f"expected a list of whole numbers, found {_describe(value)}")
        return value

    def names(self, key: str) -> list[str]:
        """One name or a list of them."""
        value = self._take(key, [])
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(v, (str, int)) and not isinstance(v, bool) for v in values):
            raise self.error(key, f"expected a name or a list of names, found {_describe(value)}")
        return [str(v) for v in values]

    def section(self, key: str) -> Section:
        value = self._take(key, {})
        if not isinstance(value, Mapping):
            raise self.error(key, f"expected a section, found {_describe(value)}")
        inner = Section(value, f"{self._name}.{key}" if self._name else key, self._source)
        inner.notes = self.notes
        return inner

    def sections(self, key: str) -> dict[str, Section]:
        """A list of mappings, by the `name` of each."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            raise self.error(key, f"expected a list of sections, each with a name, found {_describe(value)}")
        found: dict[str, Section] = {}
        for i, one in enumerate(value):
            inner = Section(one, f"{key}[{i}]", self._source)
            inner.notes = self.notes
            name = inner.text("name")
            if not name or name in found:
                raise inner.error("name", f"{name!r} is used twice" if name else "is required")
            found[name] = inner
        return found

    def has(self, key: str) -> bool:
        return self._values.get(key) not in (None, "", [])

    def ignore(self, reasons: Mapping[str, str]) -> None:
        """Notes each of these keys that is set, with the reason why it has no effect."""
        self._known |= reasons.keys()
        for key, reason in reasons.items():
            if self.has(key):
                self.note(key, reason)

    def note(self, key: str, text: str) -> None:
        self.notes.append(Note(self._path(key), text))

    def finish(self) -> None:
        """Raises ConfigError for the first key that nothing has asked for."""
        for key in self._values:
            if key not in self._known:
                raise self.error(key, f"is not a key of PaddleRec{_suggest(key, sorted(self._known))}")

    def finish_free(self, reason: str) -> None:
        """As `finish`, for a section in which users may have keys of their own: those are noted."""
        self.ignore({key: reason for key in self._values if key not in self._known})

    def error(self, key: str, text: str) -> ConfigError:
        return ConfigError(f"{self._source}: {self._path(key)}: {text}")

    def _take(self, key: str, default: Any) -> Any:
        self._known.add(key)
        value = self._values.get(key, _MISSING)
        return default if value is _MISSING or value is None else value

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _describe(value: object) -> str:
    if isinstance(value, (Mapping, list)):
        return f"a {'section' if isinstance(value, Mapping) else 'list'}"
    return repr(value)


def _suggest(value: str, choices: Sequence[str]) -> str:
    normal = {choice.lower().replace("-", "_"): choice for choice in choices}
    close = difflib.get_close_matches(value.lower().replace("-", "_"), list(normal), n=1, cutoff=0.6)
    return f"; did you mean {normal[close[0]]!r}?" if close else ""
