"""What a transfer must remember about a model, in one file that is replaced as a whole at each transition.

    idle ──▶ building ──▶ preparing ──▶ activating ──▶ idle
                 │             │
                 └──── failed, postponed or superseded ──▶ idle

Until `activating` is written no server has changed; afterwards the version is always completed. Every step may be
repeated: a killed transfer reads its journal and continues with the step it names.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from elasticctr.errors import Corruption, FailedPrecondition, NotFound
from elasticctr.storage.atomic import explain_write, read_json, write_atomic, write_json

FORMAT = 1
KEPT_HISTORY = 200

State = Literal["idle", "building", "preparing", "activating"]
Reason = Literal["publish", "rollback", "request"]
Outcome = Literal["done", "failed", "postponed", "superseded"]


@dataclass
class Rollout:
    """The rollout of one version. `steps` is what agents are to fetch, oldest first."""

    id: int
    version: int
    identity: str
    reason: Reason
    announcement: str
    asked: bool  # requested over HTTP
    started: float
    steps: list[dict[str, Any]] = field(default_factory=list)
    decided: float = 0.0
    ready: list[str] = field(default_factory=list)


@dataclass
class TransferJournal:
    model: str
    state: State = "idle"
    live: int = 0
    live_identity: str = ""
    previous: int = 0
    rollout: Rollout | None = None
    handled: str = ""  # key of the last announcement that was handled, with any outcome
    request: dict[str, Any] | None = None  # requested over HTTP, not begun
    paused: bool = False
    retries: int = 0
    retry_at: float = 0.0
    next_id: int = 1
    history: list[dict[str, Any]] = field(default_factory=list)

    def finish(self, outcome: Outcome, message: str) -> None:
        """Ends the rollout: adds it to the history and sets the state to idle. The caller saves the journal."""
        rollout = self.rollout
        assert rollout is not None
        entry = {
            "id": rollout.id,
            "version": rollout.version,
            "reason": rollout.reason,
            "outcome": outcome,
            "message": message,
            "announcement": rollout.announcement,
            "started": rollout.started,
            "decided": rollout.decided or None,
            "finished": time.time(),
            "kind": rollout.steps[-1]["kind"] if rollout.steps else None,
            "parent": rollout.steps[-1].get("parent", 0) if rollout.steps else 0,
        }
        self.history = [*self.history, entry][-KEPT_HISTORY:]
        self.rollout = None
        self.state = "idle"


class JournalFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self, model: str) -> TransferJournal:
        """The journal, or a new one. Raises Corruption rather than forget what is live."""
        try:
            found = read_json(self.path)
        except NotFound:
            return TransferJournal(model)
        try:
            if found.pop("format") != FORMAT or found["model"] != model:
                raise ValueError("written by another version, or for another model")
            rollout = found.pop("rollout")
            return TransferJournal(**found, rollout=None if rollout is None else Rollout(**rollout))
        except (KeyError, TypeError, ValueError) as e:
            raise Corruption(f"{self.path}: not a journal of {model}: {e}; move it away to start afresh") from None

    def save(self, journal: TransferJournal) -> None:
        write_json(self.path, {"format": FORMAT, **asdict(journal)})


class StateDirectory:
    """A transfer's working directory: locked while it runs, with an owner name that persists."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.builds = root / "builds"
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.builds.mkdir(exist_ok=True)
            self._lock: IO[bytes] = (root / "lock").open("ab")
        except OSError as e:
            raise explain_write(e, root) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise FailedPrecondition(
                f"{root}: another transfer uses this directory; stop it first, or give this one its own `state`"
            ) from None
        self.owner = self._read_owner()

    def journal(self, model: str) -> JournalFile:
        folder = self.root / "models" / model
        folder.mkdir(parents=True, exist_ok=True)
        return JournalFile(folder / "journal.json")

    def close(self) -> None:
        self._lock.close()

    def _read_owner(self) -> str:
        path = self.root / "owner"
        try:
            owner = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            owner = ""
        if not owner:
            owner = f"{os.uname().nodename[:32]}-{uuid.uuid4().hex[:12]}"
            write_atomic(path, owner.encode() + b"\n")
        return owner
