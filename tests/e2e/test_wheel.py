"""The wheel in an environment of its own. Without torch it looks at data, runs Cube and answers predictions, and
commands that need an extra say which; with what the extra `train` brings, it takes a log to a prediction."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import httpx
import pytest
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

from tests.e2e.conftest import Run, answer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
# Without bytecode; pyarrow, ONNX Runtime and NumPy alone take 293e6 of them: docs/install.md.
PLAIN_BYTES = 380e6
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "ELASTICCTR", "VIRTUAL_ENV"))}


@pytest.fixture(scope="session")
def wheel() -> Path:
    """From dist/, built anew if anything it is made of is newer."""
    sources = [path for folder in ("native", "src") for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"]
    sources += [ROOT / name for name in ("CMakeLists.txt", "pyproject.toml", "LICENSES-bundled.txt")]
    newest = max(path.stat().st_mtime for path in sources)
    if not any(path.stat().st_mtime > newest for path in find_wheels()):
        subprocess.run([ROOT / "tools" / "wheel.sh", sys.executable], check=True, timeout=3000)
    (found,) = find_wheels()
    return found


def find_wheels() -> list[Path]:
    """Those that this interpreter can install."""
    usable = set(sys_tags())
    return [path for path in (ROOT / "dist").glob("*.whl") if usable & parse_wheel_filename(path.name)[3]]


@pytest.fixture(scope="session")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what a plain install brings."""
    folder = tmp_path_factory.mktemp("plain") / "env"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [f"{folder}/bin/pip", "install", "--quiet", "--no-compile", f"--constraint={ROOT}/constraints.txt"]
    subprocess.run([*install, str(wheel)], check=True, timeout=900, env=CLEAN)
    return folder


def run(environment: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [environment / "bin" / "python", "-m", "elasticctr", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=CLEAN, check=False)


def test_the_wheel_is_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
        (licences,) = (archive.read(name).decode() for name in names if name.endswith("licenses/LICENSES-bundled.txt"))
    assert "manylinux" in wheel.name
    assert "elasticctr/py.typed" in names and "elasticctr/_native.pyi" in names
    bundled = {Path(name).name.partition("-")[0] for name in names if name.startswith("elasticctr.libs/lib")}
    assert bundled <= {"libssl", "libcrypto"}, "add its licence to LICENSES-bundled.txt"
    for name in ("Boost", "zlib", "nanobind", "robin-map", "OpenSSL"):
        assert name in licences
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert "\nLicense-Expression: Apache-2.0" in metadata


def test_a_plain_install_takes_little_space(plain: Path) -> None:
    (packages,) = plain.glob("lib/python*/site-packages")
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    files = [path for path in packages.rglob("*") if path.is_file() and not path.is_symlink()]
    size = sum(path.stat().st_size for path in files if not str(path.relative_to(packages)).startswith(tools))
    assert size < PLAIN_BYTES
    assert not list(packages.glob("torch*"))


def test_a_plain_install_looks_at_data(plain: Path, log: Path) -> None:
    from elasticctr import __version__

    assert run(plain, "--version").stdout.strip() == f"elasticctr {__version__}"
    found = answer(run(plain, "data", "inspect", log, "--rows", "1000", "--json"))
    assert found["rows"] == 1000
    tab = {"_ELASTICCTR_COMPLETE": "complete_bash", "COMP_WORDS": "elasticctr dat", "COMP_CWORD": "1"}
    assert subprocess.check_output(plain / "bin" / "elasticctr", env=CLEAN | tab, text=True).strip() == "data"


def test_a_plain_install_answers_predictions(
    plain: Path, elasticctr: Run, job: Path, log: Path, tmp_path: Path
) -> None:
    """A version that was trained and published elsewhere."""
    trained = elasticctr("train", job, "--json")
    assert trained.returncode == 0, trained.stderr
    repo = tmp_path / "repo"
    published = elasticctr("publish", tmp_path / "run", "--repo", repo, "--model", "ctr", "--json")
    assert published.returncode == 0, published.stderr

    built = answer(run(plain, "cube", "build", repo / "ctr" / "1", "--out", tmp_path / "builds", "--json"))
    assert built["rows"] > 0

    command = [f"{plain}/bin/elasticctr", "serve", "--repo", str(repo), "--model", "ctr", "--json"]
    command += ["--port", "0", "--grpc-port", "0", "--index-dir", str(tmp_path / "serve")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=CLEAN) as server:
        try:
            assert server.stdout is not None
            at = json.loads(server.stdout.readline())
            assert at["grpc"] is not None
            line = next(log.glob("part-*")).read_text().partition("\n")[0]
            scores = wait_for_scores(at["http"], line)
        finally:
            server.terminate()
    assert len(scores) == 1 and 0 < scores[0] < 1


def wait_for_scores(url: str, line: str) -> list[float]:
    deadline = time.monotonic() + 120
    while True:
        response = httpx.post(f"{url}/v1/models/ctr:predict", json={"lines": [line]})
        if response.status_code == 200 or time.monotonic() > deadline:
            scores: list[float] = response.raise_for_status().json()["scores"]
            return scores
        time.sleep(0.1)


def test_commands_name_the_extra_they_need(plain: Path, job: Path, tmp_path: Path) -> None:
    search = tmp_path / "tune.yaml"
    search.write_text(json.dumps({"job": str(job), "space": {"model.dim": {"choices": [4, 8]}}, "trials": 2}))
    needs_torch: dict[tuple[str | Path, ...], str] = {
        ("train", job): "training needs torch: pip install 'elasticctr[train]'",
        ("pserver", "--config", job): "training needs torch: pip install 'elasticctr[train]'",
        ("tune", search): "pip install 'elasticctr[tune]'",
        ("demo", "--quick", "--out", tmp_path / "demo"): "the demo needs torch: pip install 'elasticctr[train]'",
        ("train", job, "--on", "ray", "--pservers", "1"): "pip install 'elasticctr[ray]'",
        ("train", job, "--on", "mpi", "--pservers", "1"): "pip install 'elasticctr[mpi]'",
        ("data", "inspect", "s3://bucket/log"): "pip install 'elasticctr[s3]'",
        ("data", "inspect", "hdfs://127.0.0.1:1/log"): "pip install 'elasticctr[hdfs]'",
    }
    for command, words in needs_torch.items():
        done = run(plain, *command)
        assert done.returncode in (10, 15), (command, done.stderr)
        assert words in done.stderr, command
        assert "Traceback" not in done.stderr, command
    assert not (tmp_path / "demo").exists()


def test_with_torch_a_log_becomes_a_prediction(plain: Path, tmp_path: Path) -> None:
    """What `elasticctr[train]` installs is taken from the environment of this test."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (installed,) = plain.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(f"{installed}\n{sysconfig.get_path('purelib')}\n")
    found = answer(run(folder, "demo", "--quick", "--out", tmp_path / "demo", "--json"))
    assert {"JSON", "KServe HTTP", "KServe gRPC", "bRPC"} == set(found["scores"])
    assert max(found["scores"].values()) - min(found["scores"].values()) <= 1e-6
    assert found["models"]["deepfm"]["auc"] > 0.7
