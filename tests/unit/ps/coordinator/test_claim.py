"""One coordinator per run: a second is refused, a silent one superseded."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from elasticctr.errors import AlreadyExists, ElasticCTRError, FailedPrecondition
from elasticctr.ps.coordinator.claim import Claim


def test_a_second_is_refused_and_named_the_first(tmp_path: Path) -> None:
    first = Claim(tmp_path / "ledger")
    with pytest.raises(AlreadyExists, match=rf"incarnation 1, process {os.getpid()} on "):
        Claim(tmp_path / "ledger", silent_s=60)
    first.release()
    second = Claim(tmp_path / "ledger")
    assert second.incarnation == 2
    second.release()


def test_one_that_was_silent_is_superseded_and_notices(tmp_path: Path) -> None:
    first = Claim(tmp_path)
    first._over.set()  # as if its process were stopped
    first._thread.join()
    second = Claim(tmp_path, silent_s=0.3)
    assert second.incarnation == 2
    with pytest.raises(FailedPrecondition, match="incarnation 2"):
        first.check()
    assert first.is_lost
    first.release()  # leaves the second's claim alone
    second.check()
    second.release()


def test_of_two_that_take_over_at_once_one_gets_it(tmp_path: Path) -> None:
    got: list[Claim] = []
    refused: list[ElasticCTRError] = []

    def take() -> None:
        try:
            got.append(Claim(tmp_path, silent_s=60))
        except AlreadyExists as e:
            refused.append(e)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1 and len(refused) == 3
    got[0].release()
