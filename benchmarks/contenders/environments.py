"""Virtual environments of the peers, made with plain pip on first use.

Each has its own folder and is complete when its stamp, a digest of what was installed, matches. An interrupted or
outdated one is made again. Run as a script, this makes the named ones: `python environments.py ROOT NAME…`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

# One `pip install` argument list after the other. torch is always pinned: an unpinned one brings gigabytes of CUDA.
# Peers that declare other versions of torch than they work with are installed without dependencies.
TORCH = ["torch==2.13.0", "numpy"]
# Every peer of benchmarks/predict.py scores with these.
SCORING = ["onnxruntime==1.31.1", "numpy", "redis[hiredis]==8.1.0", "orjson==3.13.0"]
INSTALLS: dict[str, list[list[str]]] = {
    "torchrec": [
        TORCH,
        ["--no-deps", "fbgemm-gpu-cpu==1.8.0", "torchrec==1.8.0"],
        ["--no-deps", "torchmetrics", "tensordict", "pyre-extensions", "lightning-utilities", "iopath", "portalocker"],
        ["tqdm", "orjson", "importlib_metadata", "cloudpickle", "psutil", "typing-inspect", "packaging", "setuptools"],
        ["pandas", "pyvers"],
    ],
    "paddle": [["paddlepaddle==3.3.1", "setuptools"]],
    # The last release whose wheel holds the parameter server; it needs NumPy 1 and no newer protobuf.
    "paddle_ps": [["paddlepaddle==2.6.2", "numpy==1.26.4", "protobuf==5.29.6", "setuptools"]],
    "deepctr": [
        [*TORCH, "pandas", "scikit-learn", "tqdm", "tensorboard", "requests"],
        ["--no-deps", "deepctr-torch==0.3.0", "keras_preprocessing"],
    ],
    "fuxictr": [
        [*TORCH, "pandas", "scikit-learn", "tqdm", "pyyaml", "h5py", "polars", "pyarrow", "requests", "ray"],
        ["--no-deps", "fuxictr==2.3.10", "keras_preprocessing"],
    ],
    "fastapi": [[*SCORING, "fastapi==0.162.4", "uvicorn[standard]==0.54.0"]],
    "bentoml": [[*SCORING, "bentoml==1.4.39"]],
    "rayserve": [[*SCORING, "ray[serve]==2.60.0"]],
}


class EnvironmentSetupError(Exception):
    """pip or venv failed; the message is its last line."""


def prepare(root: Path, name: str) -> Path:
    """The interpreter of environment `name` under `root`."""
    folder = root / name
    python = folder / "bin" / "python"
    stamp = folder / "installed"
    digest = hashlib.sha256(json.dumps([sys.version_info[:2], INSTALLS[name]]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    for packages in INSTALLS[name]:
        _run([str(python), "-m", "pip", "install", "--quiet", *packages])
    stamp.write_text(digest)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        lines = done.stdout.strip().splitlines() or [f"exit status {done.returncode}"]
        raise EnvironmentSetupError(f"{' '.join(command[1:4])}: {lines[-1]}")


if __name__ == "__main__":
    for wanted in sys.argv[2:]:
        print(prepare(Path(sys.argv[1]), wanted), flush=True)
