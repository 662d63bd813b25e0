"""What starts without torch, ONNX Runtime and the clients of file systems."""

import subprocess
import sys
from pathlib import Path


def test_reading_and_tables_start_without_torch() -> None:
    code = (
        "import sys, elasticctr.data.dataset, elasticctr.table, elasticctr.cli.app;"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'ray', 'kubernetes', 's3fs')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_listing_versions_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from elasticctr.cli.app import app\n"
        f"app(['versions', 'list', {str(tmp_path)!r}], standalone_mode=False)\n"
        "import elasticctr.versions.verification, elasticctr.versions.rollback, elasticctr.versions.removal\n"
        "sys.exit(sum(name in sys.modules for name in ('torch', 's3fs')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_coordinator_starts_without_torch() -> None:
    code = "import sys, elasticctr.ps.coordinator.process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_models_and_shapes_are_named_without_torch() -> None:
    code = (
        "import sys, elasticctr.models, elasticctr.ps.shape, elasticctr.ps.identity; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_version_is_served_without_importing_onnx_runtime() -> None:
    code = "import sys; from elasticctr.serve.activation import served_version as s; s.find_library(); "
    code += "sys.exit(any(m in sys.modules for m in ('torch', 'onnxruntime', 'onnx')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
