"""The table of faults and attacks in docs/operations/security.md, made from the tests that prove each row.

A test says what it proves with `@pytest.mark.promise("fault or attack", "what is promised")`; a native one with a line
`// PROMISE: fault or attack | what is promised`, which may run on over the comment's next lines. Nothing is imported:
sources are read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- Written by tools/docs.py from the tests; change the tests, then run `make docs`. -->"
END = "<!-- End of what the tests wrote. -->"
_NATIVE = re.compile(r"^// PROMISE: (.+?) \| (.+(?:\n// (?!PROMISE: ).+)*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Promise:
    attack: str
    promise: str
    test: str  # path, and the function where there is one


def find_promises() -> list[Promise]:
    """In order of file and line."""
    found = [p for path in sorted((ROOT / "tests").rglob("test_*.py")) for p in _in_python(path)]
    for path in sorted((ROOT / "native" / "tests").rglob("*_test.cc")):
        matches = _NATIVE.findall(path.read_text(encoding="utf-8"))
        found += [Promise(attack, promise.replace("\n//", ""), _shown(path)) for attack, promise in matches]
    return found


def _in_python(path: Path) -> Iterator[Promise]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        for decorator in getattr(node, "decorator_list", ()):
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.promise":
                attack, promise = (ast.literal_eval(argument) for argument in decorator.args)
                yield Promise(attack, promise, f"{_shown(path)}::{node.name}")  # type: ignore[attr-defined]


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def table() -> str:
    """Rows of the same fault and promise share a line; their tests stand together."""
    rows: dict[tuple[str, str], list[str]] = {}
    for found in find_promises():
        rows.setdefault((found.attack, found.promise), []).append(f"`{found.test}`")
    lines = ["| fault or attack | what is promised | test |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {a} | {p} | {', '.join(tests)} |" for (a, p), tests in rows.items())])


def fill(page: str) -> str:
    """The page with the current table between its two marks."""
    head, _, rest = page.partition(BEGIN)
    _, mark, tail = rest.partition(END)
    if not mark:
        raise ValueError("docs/operations/security.md has lost the marks around its table")
    return f"{head}{BEGIN}\n\n{table()}\n\n{END}{tail}"
