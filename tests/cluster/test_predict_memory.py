"""Good and bad requests for long: memory stays flat, and a bad request affects no other."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from elasticctr.serve.feedback.replay import Replayer
from elasticctr.versions import Repository
from tests.cluster.mixed import Mixed
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored


def _rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]


def _metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        text = page.read().decode()
    return sum(float(v) for v in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.M))


def _replay(scored: Scored, log: Path, seen: Counter[str]) -> None:
    """Replays the log through the trainer's code: it has only good requests, with the same features and scores."""
    newest = max(log.iterdir())
    found = Replayer(scored.repository).run([newest])
    good = sum(count for name, count in seen.items() if not name.startswith(("bad", "cut", "no ", "wrong")))
    assert 0 < found.requests < 0.3 * good
    assert found.is_same, found.summary()
    assert found.from_request == found.requests
    assert found.bad_lines == 0


def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: int, count: int, bound_mib: float) -> None:
    # Workers wait for more requests: good and bad ones of several connections share micro-batches.
    for name, value in {"QUEUE_MS": 20_000, "TIMEOUT_MS": 20_000, "BATCH_WAIT_US": 300}.items():
        monkeypatch.setenv(f"ELASTICCTR__LIMITS__{name}", str(value))
    scored = Scored(Repository(str(tmp_path / "repo")))
    version = scored.base()
    with Predictor(tmp_path, scored) as predictor:
        predictor.start("--grpc-port=0", f"--request-log={tmp_path / 'log'}", "--request-log-sample=0.2")
        predictor.wait_live(version)
        assert predictor.process is not None
        mixed = Mixed(scored, version, predictor.port, predictor.grpc_port)
        mixed.run(warm)
        before = _rss_mib(predictor.process.pid)
        seen = mixed.run(count)
        after = _rss_mib(predictor.process.pid)
        assert len(seen) > 40
        assert sum(seen.values()) >= warm + count
        assert after - before <= bound_mib, (
            f"{before:.1f} MiB after {warm:,} requests, {after:.1f} after {count:,} more"
        )
        names = ("serve_batches_total", "serve_batch_requests_total")
        alone = [_metric(predictor.port, name) for name in names]
        # A micro-batch is what queued up while the one before was scored, so on a busy machine it takes a few tries.
        for _ in range(20):
            mixed.volley(40)
            batches, requests = (_metric(predictor.port, name) - was for name, was in zip(names, alone, strict=True))
            if requests > batches + 50:
                break
        assert requests > batches + 50, "good and bad requests never met in a micro-batch"
        predictor.process.check_running()
        predictor.process.stop()
        _replay(scored, tmp_path / "log", seen)


def test_twenty_thousand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(tmp_path, monkeypatch, 5_000, 15_000, 16.0)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_quarter_of_a_million(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(tmp_path, monkeypatch, 50_000, 200_000, 8.0)
