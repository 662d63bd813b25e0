"""Applies to every test: marks stories, forbids skips in CI, records failures.

A story is a test of real processes: all of tests/process, tests/cluster and tests/e2e, and what is marked so elsewhere.
Only stories are retried (tools/run_tests.sh), since a busy machine can delay processes. With
ELASTICCTR_CI set, a skip is a failure unless the machine lacks the hardware: CI installs everything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STORIES = ("tests/process/", "tests/cluster/", "tests/e2e/")
STORY_S = 900.0  # that a story may take at least: its own waits have bounds, and a busy machine makes it slow
HARDWARE = ("GPU", "on this CPU")
IS_CI = bool(os.environ.get("ELASTICCTR_CI"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(STORIES):
            item.add_marker("story")
            limit = item.get_closest_marker("timeout")
            if limit is None or limit.args[0] < STORY_S:
                item.add_marker(pytest.mark.timeout(STORY_S), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.skipped and not hasattr(report, "wasxfail"):
        _refuse_skip(report)
    return report  # type: ignore[return-value]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report: pytest.CollectReport = yield  # type: ignore[assignment]
    if report.skipped:
        _refuse_skip(report)
    return report  # type: ignore[return-value]


def _refuse_skip(report: Any) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if IS_CI and not any(words in reason for words in HARDWARE):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped in CI, where nothing but hardware may be missing: {reason}"


class _Failures:
    """Writes down who failed, `story NAME` or `unit NAME` a line. Lives in the process that hears of every test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            kind = "story" if "story" in report.keywords or report.nodeid.startswith(STORIES) else "unit"
            self._write(f"{kind} {report.nodeid}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(f"unit {report.nodeid}")

    def _write(self, line: str) -> None:
        if line not in self._path.read_text().splitlines():
            with self._path.open("a") as file:
                file.write(line + "\n")


def pytest_configure(config: pytest.Config) -> None:
    # Not for a pytest that a test runs: it would begin the list again.
    path = os.environ.pop("ELASTICCTR_FAILED_TESTS", None)
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Failures(Path(path)))
