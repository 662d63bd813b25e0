"""gflags.conf, one flag per line: `--port=8010`, `-port 8010`, `--enable_cube`, `--noenable_cube`, `#` comments and
`--flagfile=OTHER`. Every mistake is a ConfigError `FILE:LINE: …`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from elasticctr.config import read_settings_file
from elasticctr.errors import ConfigError

_FLAG = re.compile(r"--?([A-Za-z_][A-Za-z0-9_]*)(?:(?:\s*=\s*|\s+)(.*))?")
_MAX_FILES = 16


@dataclass(frozen=True, slots=True)
class Flag:
    name: str
    value: str
    where: str  # FILE:LINE

    def whole(self, low: int = 0) -> int:
        try:
            value = int(self.value)
        except ValueError:
            value = low - 1
        if value < low:
            raise ConfigError(f"{self.where}: {self.name} is {self.value!r}, expected a whole number from {low}")
        return value

    def truth(self) -> bool:
        word = self.value.lower()
        if word in ("true", "t", "yes", "y", "1"):
            return True
        if word in ("false", "f", "no", "n", "0"):
            return False
        raise ConfigError(f"{self.where}: {self.name} is {self.value!r}, expected true or false")


def read_gflags(path: Path) -> dict[str, Flag]:
    """The flags by name; if a flag is given twice the last one counts, as in gflags."""
    flags: dict[str, Flag] = {}
    _read(path, flags, [])
    return flags


def _read(path: Path, flags: dict[str, Flag], seen: list[Path]) -> None:
    if path in seen or len(seen) == _MAX_FILES:
        raise ConfigError(f"{path}: its flagfile leads back to it")
    text = read_settings_file(path)
    for number, raw in enumerate(text.splitlines(), start=1):
        line, where = raw.strip(), f"{path}:{number}"
        if not line or line.startswith("#"):
            continue
        match = _FLAG.fullmatch(line)
        if match is None:
            raise ConfigError(f"{where}: {line[:40]!r} is not a flag; expected --NAME=VALUE")
        name, value = match[1], match[2]
        if name == "flagfile":
            if not value:
                raise ConfigError(f"{where}: flagfile needs a file name")
            _read(path.parent / value.strip(), flags, [*seen, path])
        elif value is None and name.startswith("no") and len(name) > 2:
            flags[name[2:]] = Flag(name[2:], "false", where)
        else:
            flags[name] = Flag(name, "true" if value is None else value.strip().strip("\"'"), where)
