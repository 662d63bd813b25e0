"""A missing package of an extra is one line that names the extra; any other missing module is a bug and says so."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.cli.extras import explain_missing
from elasticctr.cli.tree import LazyCommand
from elasticctr.obs.machine import EXTRAS

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _lose(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """No command can be imported, because this module is missing."""

    def load(command: LazyCommand) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(LazyCommand, "load", load)


def test_the_command_ends_with_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _lose(monkeypatch, "torch.nn")
    done = CliRunner().invoke(app, ["train"])
    assert done.exit_code == 15
    assert done.stderr == ("elasticctr: FailedPrecondition: training needs torch: pip install 'elasticctr[train]'\n")


def test_another_missing_module_is_not_explained_away(monkeypatch: pytest.MonkeyPatch) -> None:
    _lose(monkeypatch, "elasticctr.nowhere")
    with pytest.raises(ModuleNotFoundError, match=r"elasticctr\.nowhere"):
        CliRunner().invoke(app, ["train"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("module", "command", "words"),
    [
        ("matplotlib.axes", "report", "the report needs matplotlib: pip install 'elasticctr[train]'"),
        ("optuna", "tune", "tuning needs optuna: pip install 'elasticctr[tune]'"),
        ("torch", "tune", "tuning needs torch: pip install 'elasticctr[tune]'"),
        ("hdfs_native", None, "this needs hdfs-native: pip install 'elasticctr[hdfs]'"),
    ],
)
def test_modules_are_told_by_their_packages(module: str, command: str | None, words: str) -> None:
    assert str(explain_missing(ModuleNotFoundError(name=module), command)) == words


def test_the_extras_are_those_of_the_project() -> None:
    extras = PROJECT["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        assert {Requirement(one).name for one in extras[extra]} - {"elasticctr"} == set(packages)
