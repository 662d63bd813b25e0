"""Where a run happened: machine, versions, commit, command line. Written beside every result, so that it can be judged
and repeated. Never reads environment variables, which may hold secrets.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from elasticctr import __version__

PACKAGES = ("numpy", "torch", "pyarrow", "pydantic", "onnx", "onnxruntime", "matplotlib")
SECRET_WORDS = ("password", "passwd", "secret", "token", "credential", "access_key", "access-key", "api_key", "api-key")

Value = str | int | float | bool | None | dict[str, str]


def capture_environment(directory: str | Path = ".") -> dict[str, Value]:
    """JSON-able. `directory` is where to look for the git commit."""
    from elasticctr import _native

    commit, is_dirty = _git_commit(Path(directory))
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": hide_secrets(sys.argv),
        "host": platform.node(),
        "os": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "python": platform.python_version(),
        "elasticctr": __version__,
        "native_debug_build": _native.is_debug_build,
        "native_threads": _native.threads(),
        "packages": _package_versions(),
        "git_commit": commit,
        "git_dirty": is_dirty,
    }


def hide_secrets(arguments: list[str]) -> str:
    """The command line with passwords in URLs and the values of secret flags replaced by stars."""
    shown: list[str] = []
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_telling = any(word in name.lower() for word in SECRET_WORDS)
        if hide_next:
            shown.append("***")
        elif is_telling and equals:
            shown.append(f"{name}=***")
        else:
            shown.append(_hide_url_password(argument))
        hide_next = not hide_next and is_telling and not equals and argument.startswith("-")
    return shlex.join(shown)


def _hide_url_password(argument: str) -> str:
    scheme, found, rest = argument.partition("://")
    authority, slash, path = rest.partition("/")
    if not found or "@" not in authority:
        return argument
    return f"{scheme}://***@{authority.rpartition('@')[2]}{slash}{path}"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def _package_versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _git_commit(directory: Path) -> tuple[str | None, bool | None]:
    """(commit, whether tracked files differ from it); (None, None) outside a repository or without git."""

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(directory), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None, None
    changes = git("status", "--porcelain", "--untracked-files=no")
    return commit, None if changes is None else bool(changes)
