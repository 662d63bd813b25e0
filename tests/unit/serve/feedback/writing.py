"""Request logs for tests, written by the native log itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elasticctr import _native

HOUR = 1_794_747_600.0  # 20261115/13, UTC


def write_requests(
    directory: Path, requests: Sequence[tuple[float, str, list[dict[str, list[int]]]]], *, model: str = "ctr"
) -> None:
    """(time, id, candidates): feasigns by slot; the slot `user` of the first candidate is shared by all."""
    log = _native.RequestLog(str(directory))
    for time_s, request_id, candidates in requests:
        slots = sorted({name for candidate in candidates for name in candidate})
        shared = [(slots.index("user"), candidates[0]["user"])] if "user" in slots and len(candidates) > 1 else []
        own = [
            [(slots.index(name), values) for name, values in candidate.items() if not (shared and name == "user")]
            for candidate in candidates
        ]
        scores = [[0.5]] * len(candidates)
        assert log.add(time_s, request_id, model, 1, "live", "json", b"{}", slots, [], [shared, *own], [], scores)
    log.stop()
