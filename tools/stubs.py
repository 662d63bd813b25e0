"""Writes src/elasticctr/_native.pyi from the built module; with --check, says whether the committed one is still true.

The comparison with a fresh stub is the check: mypy.stubtest takes no nanobind function for a function.
usage: python tools/stubs.py [--check]
"""

from __future__ import annotations

import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "src" / "elasticctr" / "_native.pyi"
HEAD = "# Generated from the built module by tools/stubs.py. Do not edit.\n# ruff: noqa\nfrom typing import Any\n"


def make_stub() -> str:
    """The module's stub, formatted as the rest of the code is."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_native.pyi"
        run("nanobind.stubgen", "--quiet", "--module", "elasticctr._native", "--output-file", str(path))
        # Tuples of arrays and lists come out bare, which strict typing does not take.
        text = path.read_text().replace("-> tuple:", "-> tuple[Any, ...]:").replace("-> list:", "-> list[Any]:")
        text = text.replace("list[tuple]", "list[tuple[Any, ...]]")
        path.write_text(HEAD + text)
        config = ["--config", str(ROOT / "pyproject.toml")]
        run("ruff", "format", "--quiet", *config, str(path))
        return path.read_text()


def run(module: str, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"{module} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    fresh = make_stub()
    if "--check" not in sys.argv[1:]:
        STUB.write_text(fresh)
        return
    committed = STUB.read_text() if STUB.exists() else ""
    if fresh != committed:
        lines = difflib.unified_diff(committed.splitlines(), fresh.splitlines(), "committed", "built", lineterm="")
        sys.stderr.write("\n".join(lines) + "\n")
        raise SystemExit(f"{STUB.relative_to(ROOT)} does not match the built module; run `make stubs` and commit it")


if __name__ == "__main__":
    main()
