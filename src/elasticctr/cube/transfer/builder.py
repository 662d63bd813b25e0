"""Runs the cube builder: small versions in this process, large ones in a separate process that can be killed.

Starting a process takes about a second, most of the time of a small delta from publishing to serving.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from elasticctr.cube.build.builder import BuildOptions
from elasticctr.cube.build.builds import build_version
from elasticctr.cube.transfer.settings import BuildSettings
from elasticctr.errors import Corruption, InternalError
from elasticctr.net.answers import error_named
from elasticctr.obs.watch import Watch
from elasticctr.versions import Repository
from elasticctr.versions.feed import Link, read_links

_POLL_S = 0.05
_KILL_AFTER_S = 5.0


class RepositoryBuilder:
    """Builds versions of a repository."""

    def __init__(self, repository: Repository, settings: BuildSettings, shards: int) -> None:
        self._repository = repository
        self._settings = settings
        self._shards = shards

    def build(self, model: str, link: Link, out: Path, *, compact: bool, watch: Watch) -> None:
        self._build(model, link, out, compact, watch)
        # The repository may have been restored meanwhile; the build would then carry the wrong number.
        if read_links(self._repository, model, link.version)[-1].chain != link.chain:
            raise Corruption(f"version {link.version} of {model} changed after it was announced; publish a new one")

    def _build(self, model: str, link: Link, out: Path, compact: bool, watch: Watch) -> None:
        rows = sum(one.rows for one in self._repository.chain(model, link.version)) if compact else link.rows
        if rows > self._settings.in_process_rows:
            self._run(model, link.version, out, compact, watch)
            return
        build_version(
            self._repository,
            model,
            link.version,
            out,
            BuildOptions(shards=self._shards, sharding=self._settings.sharding),
            whole=compact,
            advance=lambda _: watch.check(),
        )

    def _run(self, model: str, version: int, out: Path, compact: bool, watch: Watch) -> None:
        arguments = ["cube", "build", f"{self._repository.url}/{model}/{version}", "--out", str(out)]
        arguments += ["--shards", str(self._shards), "--sharding", self._settings.sharding, "--json"]
        run_builder([*arguments, "--whole"] if compact else arguments, watch)


def run_builder(arguments: list[str], watch: Watch) -> None:
    """Runs an `elasticctr …` command that prints JSON; kills it when the watch ends. Raises the error it printed."""
    command = [sys.executable, "-m", "elasticctr", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while process.poll() is None:
                watch.check()
                time.sleep(_POLL_S)
        except BaseException:
            _end(process)
            raise
        output = process.stdout.read() if process.stdout is not None else b""
    if process.returncode != 0:
        try:
            error = json.loads(output.splitlines()[-1])["error"]
        except (ValueError, KeyError, IndexError, TypeError):
            raise InternalError(f"the builder exited with status {process.returncode} and no reason") from None
        raise error_named(f"{error['code']}: {error['message']}", "builder")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        process.kill()
