"""The guide "Add a model" of CONTRIBUTING.md, followed word for word in a copy of the tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from elasticctr import _native

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "docs", "examples", "native", "proto", "pyproject.toml")
BLOCK = re.compile(r"((?:[^\n]+\n)+)\n```(\w+)\n(.*?)```", re.DOTALL)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tree whose `.venv` runs it, with the packages and the native module of this one."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree / name)
    assert _native.__file__ is not None
    shutil.copy(_native.__file__, tree / "src" / "elasticctr")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tree / ".venv"], check=True)
    (packages,) = (tree / ".venv").glob("lib/python*/site-packages")
    (packages / "tree.pth").write_text(f"{tree / 'src'}\n{sysconfig.get_path('purelib')}\n")
    pytest = tree / ".venv" / "bin" / "pytest"
    pytest.write_text(f'#!/bin/sh\nexec "{tree}/.venv/bin/python" -m pytest -p no:cacheprovider "$@"\n')
    pytest.chmod(0o755)
    return tree


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_guide_to_a_new_model(tree: Path) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    guide = page.partition("\n## Add a model\n")[2].partition("\n## ")[0]
    followed = []
    for told, language, text in BLOCK.findall(guide):
        named = re.findall(r"`((?:src|tests)/\S+\.py)`", told)
        if language == "python":
            (tree / named[-1]).write_text(text)
        elif language == "diff":
            insert_lines(tree / named[-1], text)
        else:
            done = subprocess.run(["sh", "-ec", text], cwd=tree, capture_output=True, text=True, timeout=1500)
            assert done.returncode == 0, done.stdout + done.stderr
            assert re.search(r"\d+ passed", done.stdout), done.stdout
        followed.append(language)
    assert followed == ["python", "diff", "python", "sh"]


def insert_lines(path: Path, diff: str) -> None:
    """Each line with + goes before the line that follows it in the diff."""
    text, added = path.read_text(), ""
    for line in diff.splitlines(keepends=True):
        if line.startswith("+"):
            added += line[1:]
        else:
            assert text.count("\n" + line[1:]) == 1, f"{path}: {line[1:]!r} is not there once"
            text, added = text.replace("\n" + line[1:], "\n" + added + line[1:]), ""
    path.write_text(text)
