"""A server that logs requests is killed: its log stays readable, and the next server completes it."""

from __future__ import annotations

from pathlib import Path

from elasticctr.serve.feedback.log import list_logs, parse_line, read_lines
from elasticctr.serve.feedback.replay import Replayer
from elasticctr.versions import Repository
from tests.cluster.harness import wait_until
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored


def _requests(log: Path) -> int:
    return sum(bool(parse_line(line, path)) for path in list_logs([log]) for _, line in read_lines(path))


def test_killed_while_it_logs(tmp_path: Path) -> None:
    scored = Scored(Repository(str(tmp_path / "repo")))
    version = scored.base()
    log = tmp_path / "log"
    with Predictor(tmp_path, scored) as predictor:
        predictor.start(f"--request-log={log}")
        predictor.wait_live(version)
        with predictor.load(rate=400) as load:
            wait_until(lambda: _requests(log) > 50, "requests are logged")
            answered = load.answered.requests
            wait_until(lambda: _requests(log) >= answered, "what was answered is on disk")
            predictor.process.kill()  # type: ignore[union-attr]
        (left,) = log.iterdir()
        assert left.name.endswith(".jsonl.open")
        kept = _requests(log)
        assert kept >= answered

        predictor.start(f"--request-log={log}")
        predictor.wait_live(version)
        assert not left.exists()
        assert left.with_name(left.name.removesuffix(".open")).exists()
        assert _requests(log) == kept
        with predictor.load() as load:
            wait_until(lambda: load.answered.requests > 20, "more requests")
        load.check()
        assert predictor.process is not None
        predictor.process.stop()
        assert _requests(log) == kept + load.answered.requests
        assert not list(log.glob("*.open"))
        found = Replayer(scored.repository).run([log])
        assert found.is_same
        assert found.from_request == found.requests == kept + load.answered.requests
