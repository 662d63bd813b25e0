"""`elasticctr doctor` finds what prevents training, and fails only then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elasticctr import _native
from elasticctr.cli.app import app
from elasticctr.obs import machine


def _doctor(*args: str) -> tuple[int, dict[str, dict[str, str]]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *args])
    report = json.loads(result.stdout)
    assert report["can_train"] == (result.exit_code == 0)
    return result.exit_code, {check["name"]: check for check in report["checks"]}


def test_this_machine_can_train(tmp_path: Path) -> None:
    status, checks = _doctor("--folder", str(tmp_path))
    assert status == 0
    assert {"python", "platform", "cpu", "cores", "memory", "disk", "writing", "native module"} <= set(checks)
    assert checks["native module"]["found"] == "release build"
    assert checks["numpy"]["status"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_plain_output(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--folder", str(tmp_path)])
    assert result.exit_code == 0 and "Training is possible." in result.stdout


def test_a_missing_package_names_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    known = machine._version
    monkeypatch.setattr(machine, "_version", lambda name: None if name in ("torch", "s3fs") else known(name))
    status, checks = _doctor()
    assert status == 15
    assert checks["torch [train]"]["status"] == "error"
    assert checks["torch [train]"]["advice"] == "pip install 'elasticctr[train]'"
    assert checks["s3fs [s3]"]["status"] == "warning"


def test_hidden_amx_leaf_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    features = {"avx2": True, "amx_bf16": True, "onednn_amx_broken": True}
    monkeypatch.setattr(_native, "cpu_features", lambda: features)
    _, checks = _doctor()
    assert checks["amx"]["status"] == "warning" and "0x1D" in checks["amx"]["found"]
    assert "ONEDNN_MAX_CPU_ISA" in checks["amx"]["advice"]
    monkeypatch.setattr(_native, "cpu_features", lambda: {"avx2": False, "onednn_amx_broken": False})
    assert "amx" not in _doctor()[1]


def test_a_debug_build_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "is_debug_build", True)
    assert _doctor()[1]["native module"]["status"] == "warning"


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    status, checks = _doctor("--folder", str(tmp_path / "absent"))
    assert status == 15
    assert checks["disk"]["status"] == checks["writing"]["status"] == "error"
