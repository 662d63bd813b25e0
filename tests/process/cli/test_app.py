"""A listing of commands imports nothing heavy, in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyarrow", "numpy", "torch", "httpx", "starlette", "onnxruntime", "uvicorn", "grpc", "pandas")


@pytest.mark.parametrize("arguments", [["--help"], ["cube", "--help"], ["data"], ["versions", "lst"]])
def test_a_listing_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv[1:] = {arguments!r}\n"
        "from elasticctr.cli.app import main\n"
        "try: main()\n"
        f"except SystemExit: print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.endswith("[]\n"), done.stdout
