"""A rollout where transfer and agents speak HTTPS to each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.certificate import make_certificate
from tests.unit.cube.transfer.conftest import Bed

from elasticctr.config.tls import TlsSettings


def test_a_version_travels_over_https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cert, key = make_certificate(tmp_path)
    bed = Bed(tmp_path, 2, 1, TlsSettings(cert=cert, key=key, ca=cert))
    try:
        process, rollout = bed.transfer()
        assert process.address.startswith("https://")
        bed.feed.publish(1)
        bed.turn_until(rollout, lambda: bed.active() == [1, 1])
        assert bed.agents[0].agent.fetcher.bytes_fetched > 0
    finally:
        bed.stop()
