"""Long work in the background: one job per model at a time, and a bounded number in total."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from elasticctr.errors import ElasticCTRError, InternalError, Unavailable
from elasticctr.obs.watch import Watch

MAX_RUNNING = 8
MAX_REMEMBERED = 64


class AgentJob:
    """`state`: starting, fetching, loading, ready, failed. The last two are final."""

    def __init__(self, model: str, version: int, key: str, timeout_s: float) -> None:
        self.model = model
        self.version = version
        self.key = key
        self.watch = Watch(timeout_s)
        self.state = "starting"
        self.error: ElasticCTRError | None = None
        self.started_s = time.time()
        self.finished = threading.Event()

    @property
    def is_running(self) -> bool:
        return not self.finished.is_set()

    def describe(self) -> dict[str, Any]:
        error = self.error
        return {
            "model": self.model,
            "version": self.version,
            "state": self.state,
            "bytes_done": self.watch.bytes_done,
            "bytes_total": self.watch.bytes_total,
            "started": round(self.started_s, 3),
            "error": None if error is None else {"code": error.code, "message": str(error)},
        }


class AgentJobs:
    """Threads: any."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._latest: dict[str, AgentJob] = {}

    def start(self, model: str, version: int, key: str, work: Callable[[AgentJob], None]) -> AgentJob:
        """Runs `work` in a thread, or joins the job that does the same. Raises Unavailable while another job runs."""
        with self._lock:
            current = self._latest.get(model)
            if current is not None and current.is_running:
                if current.key == key:
                    return current
                raise Unavailable(f"version {current.version} of {model} is being prepared; try again later", 1.0)
            if sum(job.is_running for job in self._latest.values()) >= MAX_RUNNING:
                raise Unavailable(f"{MAX_RUNNING} jobs are already running; try again", 1.0)
            while len(self._latest) >= MAX_REMEMBERED:
                del self._latest[next(name for name, job in self._latest.items() if not job.is_running)]
            job = AgentJob(model, version, key, self._timeout_s)
            self._latest.pop(model, None)
            self._latest[model] = job
        threading.Thread(target=_run, args=(job, work), name=f"prepare-{model}", daemon=True).start()
        return job

    def latest(self, model: str) -> AgentJob | None:
        with self._lock:
            return self._latest.get(model)

    def all(self) -> list[AgentJob]:
        with self._lock:
            return list(self._latest.values())

    def cancel(self, model: str | None = None) -> int:
        """Tells the job of a model, or every job, to stop. Returns how many were running."""
        running = [job for job in self.all() if job.is_running and model in (None, job.model)]
        for job in running:
            job.watch.cancel()
        return len(running)


def _run(job: AgentJob, work: Callable[[AgentJob], None]) -> None:
    try:
        work(job)
        job.state = "ready"
    except ElasticCTRError as e:
        job.error, job.state = e, "failed"
    except Exception as e:
        job.error, job.state = InternalError(f"{type(e).__name__}: {e}"), "failed"
    finally:
        job.finished.set()
