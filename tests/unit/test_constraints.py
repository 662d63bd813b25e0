"""constraints.txt names every package that `make build` installs, at the version that is installed."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
BUILD_TOOLS = ("scikit-build-core", "nanobind", "cmeel-boost", "cmake", "ninja")  # as the Makefile installs them


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


def test_every_installed_package_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {plain(name): version for name, version in pins.items()}
    found = installed()
    assert len(found) > 100  # the walk went through torch and the test tools
    wrong = [f"{name}=={version}" for name, version in sorted(found.items()) if pinned.get(name) != version]
    assert not wrong, f"constraints.txt lacks these, or names another version: {wrong}"
