"""The display of distributed training: a live table of all roles on a terminal, plain lines elsewhere.

A table row joins what the coordinator knows about a role (rows, rates, lease) with what the engine knows (restarts).
Evaluations, checkpoints and restarts are printed as permanent lines.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from elasticctr.cluster.engine import RoleState
from elasticctr.obs import console as consoles

LINE_EVERY_S = 10.0
COLUMNS = (
    "role",
    "host",
    "state",
    "#rows",
    "#memory",
    "#pulls/s",
    "#pushes/s",
    "#lag",
    "lease",
    "#samples/s",
    "#restarts",
)
_ORDER = {"coordinator": 0, "pserver": 1, "standby": 2, "trainer": 3}


def make_rows(status: Mapping[str, Any], states: Sequence[RoleState]) -> list[list[str]]:
    """One row of text per role, the coordinator first. Includes roles that only one side knows."""
    known = {str(role.get("name")): role for role in _dicts(status.get("roles"))}
    by_engine = {state.name: state for state in states}
    names = sorted({*known, *by_engine}, key=_place)
    return [_row(name, known.get(name, {}), by_engine.get(name)) for name in names]


def headline(status: Mapping[str, Any]) -> str:
    """The job's progress in one line."""
    if not status:
        return "starting"
    parts = [str(status.get("phase", "running"))]
    if status.get("strategy"):
        parts[0] += f" ({status['strategy']})"
    if status.get("epoch") is not None:
        of = f" of {status['epochs']}" if status.get("epochs") else ""
        parts.append(f"epoch {min(int(status['epoch']) + 1, int(status.get('epochs') or 1 << 30))}{of}")
    chunks = status.get("chunks")
    if isinstance(chunks, dict) and chunks.get("total"):
        parts.append(f"chunks {chunks.get('done', 0)}/{chunks['total']}")
    for key, word in (("step", "step"), ("samples", "")):
        if status.get(key) is not None:
            parts.append(f"{word} {_count(status[key])}".strip() + (" samples" if key == "samples" else ""))
    if status.get("samples_per_s") is not None:
        parts.append(f"{_count(status['samples_per_s'])}/s")
    for key in ("loss", "auc"):
        if status.get(key) is not None:
            parts.append(f"{key} {float(status[key]):.4f}")
    if status.get("rollbacks"):
        parts.append(f"{status['rollbacks']} rollbacks")
    return "  ".join(parts)


class JobView:
    """Context manager. `show` is called often and draws at most a few times a second."""

    def __init__(self, title: str, *, quiet: bool = False, console: Console | None = None) -> None:
        self._title = title
        self._quiet = quiet
        self._console = console or consoles.stderr()
        self._live: Live | None = None
        self._drawn_s = self._line_s = time.monotonic()
        self._restarts: dict[str, int] = {}
        self._phases: dict[str, str] = {}
        if not quiet and self._console.is_terminal:
            self._live = Live(Text("starting"), console=self._console, refresh_per_second=4, transient=True)

    def __enter__(self) -> JobView:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, status: Mapping[str, Any], states: Sequence[RoleState]) -> None:
        if self._quiet:
            return
        self._tell_changes(states)
        now_s = time.monotonic()
        if self._live is not None and now_s - self._drawn_s >= 0.25:
            self._drawn_s = now_s
            self._live.update(Group(Text(headline(status)), draw_table(self._title, make_rows(status, states))))
        elif self._live is None and now_s - self._line_s >= LINE_EVERY_S:
            self._line_s = now_s
            self.note(f"{headline(status)}  {_count_roles(states)}")

    def tell_event(self, event: Mapping[str, Any]) -> None:
        """Prints a permanent line for an important event."""
        kind = event.get("event")
        if kind == "eval":
            auc = "-" if event.get("auc") is None else f"{event['auc']:.5f}"
            loss = "-" if event.get("logloss") is None else f"{event['logloss']:.5f}"
            self.note(f"{event.get('split')}: auc {auc}  logloss {loss}  after step {_count(event.get('step'))}")
        elif kind == "checkpoint":
            self.note(f"checkpoint: {event.get('path')}")
        elif kind == "warning" and event.get("text"):
            self.note(f"warning: {event['text']}")
        elif kind == "rollback":
            self.note(f"rolled back to {event.get('path') or event.get('to') or 'the last checkpoint'}")

    def note(self, text: str) -> None:
        if not self._quiet:
            target = self._live.console if self._live is not None else self._console
            target.print(text, markup=False, highlight=False, soft_wrap=True)

    def _tell_changes(self, states: Sequence[RoleState]) -> None:
        for state in states:
            if state.phase == "restarting" and self._phases.get(state.name) != "restarting":
                self.note(f"{state.name} {state.reason}; restarting it")
            elif state.restarts > self._restarts.get(state.name, 0) and self._phases.get(state.name) != "restarting":
                self.note(f"{state.name} was restarted: {state.reason or 'it was lost'}")
            self._phases[state.name] = state.phase
            self._restarts[state.name] = state.restarts


def draw_table(title: str, rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in COLUMNS:
        is_number = column.startswith("#")
        table.add_column(column.removeprefix("#"), justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _row(name: str, known: Mapping[str, Any], state: RoleState | None) -> list[str]:
    stats = known.get("stats") if isinstance(known.get("stats"), dict) else {}
    assert isinstance(stats, dict)
    said = str(known.get("state") or "")
    phase = state.phase if state is not None else "-"
    leases = known.get("leases")
    return [
        name,
        str(known.get("host") or (state.host if state is not None else "") or "-"),
        said if said and phase in ("running", "-") else phase,
        _count(stats.get("rows")),
        _size(stats.get("memory_bytes")),
        _count(stats.get("pulls_per_s")),
        _count(stats.get("pushes_per_s")),
        _count(stats.get("lag")),
        ", ".join(_chunk(one) for one in leases) if isinstance(leases, list) and leases else "-",
        _count(stats.get("samples_per_s")),
        str(state.restarts if state is not None else known.get("restarts", 0)),
    ]


def _place(name: str) -> tuple[int, str, int]:
    kind, _, index = name.rpartition("-")
    return _ORDER.get(kind, 9), kind, int(index) if index.isdigit() else 0


def _chunk(given: Any) -> str:
    """Formats `epoch << 32 | number`; returns anything else unchanged."""
    try:
        value = int(given)
    except (TypeError, ValueError):
        return str(given)
    return f"{(value >> 32) + 1}:{value & 0xFFFFFFFF}"


def _count(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _size(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:,.0f} MiB"


def _count_roles(states: Sequence[RoleState]) -> str:
    kinds: dict[str, int] = {}
    for state in states:
        if state.phase == "running":
            kind = state.name.rpartition("-")[0]
            kinds[kind] = kinds.get(kind, 0) + 1
    restarts = sum(state.restarts for state in states)
    shown = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in kinds.items())
    return f"[{shown}{f', {restarts} restarts' if restarts else ''}]"


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
