"""The short demo: one model, published and served from one process, answers one line of the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticctr.cli.demo.predicting import DemoServer, ask_every_way, read_lines
from elasticctr.cli.demo.serving import MODEL, RUN, publish_base
from elasticctr.cli.demo.shell import Shell
from elasticctr.cli.demo.training import train_models

ROWS = 40_000


def run_quick(shell: Shell, directory: Path, rows: int) -> dict[str, Any]:
    trained = train_models(shell, directory, rows, (RUN,))
    repo = directory / "repo"
    published = publish_base(shell, directory / "runs" / RUN, repo)
    with DemoServer(directory, repo) as server:
        server.wait_live(int(published["version"]))
        scores = ask_every_way(shell, server, repo, read_lines(directory / "log"))
    served = f"elasticctr serve --repo {repo} --model {MODEL}"
    shell.say(f"\nserve it yourself: {served}\nthe whole system: elasticctr demo --out {directory} --overwrite")
    return {**trained, "version": published["version"], "scores": scores}
