"""What a trainer reports to the coordinator, in order and off its critical path, and the orders it gets back.

One thread sends beats and reports. While the coordinator does not answer, reports wait and are repeated, and
training continues. After `wait_s` without an answer the trainer gives up.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elasticctr.errors import DeadlineExceeded, ElasticCTRError, Unavailable
from elasticctr.ps.coordinator_client import CoordinatorClient, pack_metrics
from elasticctr.ps.trainer.leases import ChunkLease

_BEAT_S = 1.0
_HURRIED_S = 0.1  # between beats while something is waited for
_RETRY_S = 0.2


@dataclass(slots=True)
class _Report:
    path: str
    lease: ChunkLease | None
    body: dict[str, Any]
    metrics: bytes | None  # their state


class Reporter:
    def __init__(
        self,
        coordinator: CoordinatorClient,
        member: int,
        stats: Callable[[], dict[str, Any]],
        *,
        wait_s: float,
        beat_s: float = _BEAT_S,
    ) -> None:
        self._coordinator = coordinator
        self._member = member
        self._stats = stats
        self._wait_s = wait_s
        self._beat_s = beat_s
        self._reports: deque[_Report] = deque()
        self._lock = threading.Condition()
        self._is_closed = False
        self._is_sending = False
        self._is_hurried = False
        self.rate_scale = 1.0  # of learning rates, as the coordinator last said
        self.is_reload = False  # pservers went back to a checkpoint: all leases and all that is not applied is void
        self.is_stop = False
        self.on_beat: Callable[[], None] = lambda: None
        self.failure: ElasticCTRError | None = None  # why this trainer must end
        self._thread = threading.Thread(target=self._run, name="elasticctr-reports", daemon=True)
        self._thread.start()

    def progress(self, lease: ChunkLease, body: dict[str, Any], metrics: bytes | None) -> None:
        self._add(_Report("/v1/progress", lease, {"chunk": lease.name, **body}, metrics))

    def done(self, lease: ChunkLease, body: dict[str, Any], metrics: bytes | None) -> None:
        self._add(_Report("/v1/done", lease, {"chunk": lease.name, **body}, metrics))

    def give_back(self, lease: ChunkLease, reason: str) -> None:
        self._add(_Report("/v1/give_back", lease, {"chunk": lease.name, "reason": reason}, None))

    def report(self, what: str, detail: str) -> None:
        self._add(_Report("/v1/report", None, {"what": what, "detail": detail}, None))

    def hurry(self) -> None:
        """The next beat comes soon: its answer is waited for."""
        with self._lock:
            if not self._is_hurried:
                self._is_hurried = True
                self._lock.notify_all()

    def take_answer(self, answer: dict[str, Any]) -> None:
        """Notes what any answer of the coordinator may carry."""
        scale, order = answer.get("rate_scale"), answer.get("order")
        with self._lock:
            if isinstance(scale, (int, float)) and scale > 0:
                self.rate_scale = float(scale)
            if order == "reload":
                self.is_reload = True
            elif order == "stop":
                self.is_stop = True

    def forget(self) -> None:
        """Drops reports not sent: after a reload they are of leases that are void."""
        with self._lock:
            self._reports.clear()
            self.is_reload = False

    def drain(self, wait_s: float) -> bool:
        """Whether everything was sent in time."""
        deadline = time.monotonic() + wait_s
        with self._lock:
            while (self._reports or self._is_sending) and self.failure is None:
                if not self._lock.wait(min(deadline - time.monotonic(), 0.5)) and time.monotonic() >= deadline:
                    return False
            return self.failure is None

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        self._thread.join()

    def _add(self, report: _Report) -> None:
        with self._lock:
            self._reports.append(report)
            self._lock.notify_all()

    def _run(self) -> None:
        heard = beaten = time.monotonic()
        while True:
            with self._lock:
                if not self._reports and not self._is_closed and self._due_s(beaten) > 0:
                    self._lock.wait(self._due_s(beaten))
                if self._is_closed:
                    return
                report = self._reports[0] if self._reports else None
                self._is_sending = report is not None
                is_due = self._due_s(beaten) <= 0
                self._is_hurried = self._is_hurried and not is_due
            try:
                if is_due:
                    self.take_answer(self._coordinator.beat(self._member, self._stats()))
                    heard = beaten = time.monotonic()
                    self.on_beat()
                if report is not None:
                    self._send(report)
                    heard = time.monotonic()
            except (Unavailable, DeadlineExceeded) as e:
                if time.monotonic() - heard > self._wait_s:
                    self._fail(e)
                    return
                time.sleep(_RETRY_S)
            except ElasticCTRError as e:
                self._fail(e)
                return
            finally:
                with self._lock:
                    self._is_sending = False
                    self._lock.notify_all()

    def _due_s(self, beaten: float) -> float:
        every_s = min(_HURRIED_S, self._beat_s) if self._is_hurried else self._beat_s
        return beaten + every_s - time.monotonic()

    def _send(self, report: _Report) -> None:
        body = {"id": self._member, **report.body}
        if report.metrics is not None:
            body["metrics"] = pack_metrics(report.metrics)
        answer = self._coordinator.post(report.path, body)
        self.take_answer(answer)
        lease = report.lease
        if lease is not None:
            if answer.get("is_held") is False:
                lease.is_lost = True
            if report.path != "/v1/progress":
                lease.is_over = True
        with self._lock:
            if self._reports and self._reports[0] is report:  # a reload may have dropped it
                self._reports.popleft()

    def _fail(self, error: ElasticCTRError) -> None:
        with self._lock:
            self.failure = error
            self._lock.notify_all()
