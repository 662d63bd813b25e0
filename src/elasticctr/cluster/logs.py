"""Reads the logs of a run's roles: the last lines, then those that are added."""

from __future__ import annotations

from pathlib import Path

from elasticctr.errors import NotFound

_TAIL = 1 << 20


def find_logs(run: Path, roles: list[str]) -> list[Path]:
    """The log files of these roles, or of all. NotFound lists the existing ones."""
    directory = run / "logs"
    there = sorted(directory.glob("*.log"))
    if not there:
        raise NotFound(f"{directory}: no logs; a run in a single process prints to the terminal")
    by_name = {path.stem: path for path in there}
    missing = [role for role in roles if role not in by_name]
    if missing:
        raise NotFound(f"{directory}: no log of {missing[0]}, only of {', '.join(by_name)}")
    return [by_name[role] for role in dict.fromkeys(roles)] if roles else there


class Follower:
    """Follows one log. The first `read` returns its last `lines`, later ones what was added. A torn last line waits."""

    def __init__(self, path: Path, lines: int) -> None:
        self.name = path.stem
        self._path = path
        self._first = lines
        self._offset: int | None = None
        self._rest = b""

    def read(self) -> list[str]:
        is_first = self._offset is None
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if self._offset is None or size < self._offset:
                    self._offset = max(0, size - _TAIL)
                file.seek(self._offset)
                data = self._rest + file.read()
                self._offset = file.tell()
        except OSError:
            return []
        whole, _, self._rest = data.rpartition(b"\n")
        lines = whole.decode(errors="replace").split("\n") if whole else []
        return lines[len(lines) - min(self._first, len(lines)) :] if is_first else lines
