"""Joins logged requests and click events into training samples, hour by hour.

    join(JoinOptions(requests=("log",), clicks=("clicks.jsonl",), out=Path("samples"), state=Path("state")))

A request is written once, after its clicks had `window_s` to happen and `delay_s` to arrive. Until then it waits in the
state directory, in files by time and by a hash of its id, so that memory holds a fraction of the events of one window
and never the requests. Another run continues where the last one ended; after a kill, where the one before it ended.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.errors import AlreadyExists, ConfigError, DataError
from elasticctr.serve.feedback.events import Reading, read_events
from elasticctr.serve.feedback.hours import DONEFILE, HourFiles, hour_of
from elasticctr.serve.feedback.log import list_logs, log_name, open_log, parse_line, read_lines
from elasticctr.serve.feedback.sample_lines import SampleLines
from elasticctr.serve.feedback.state import JoinCounts, JoinState
from elasticctr.storage import resolve

BUCKET_S = 300  # divides the hour
PARTITIONS = 16
_DONE = np.dtype([("id", "<u8"), ("time", "<f8")])


@dataclass(frozen=True, slots=True)
class JoinOptions:
    requests: tuple[str, ...]
    clicks: tuple[str, ...]
    out: Path
    window_s: float = 1800.0
    impressions: tuple[str, ...] = ()  # if given, only candidates that were shown become samples
    format: str | None = None  # feasign or slot; None: feasign if the log has no dense slots
    model: str | None = None  # None: the log's only model
    state: Path | None = None  # None: write everything at once
    delay_s: float = 120.0  # how long a click's line may take to arrive
    skew_s: float = 5.0  # how much clocks may differ
    now_s: float | None = None  # None: the current time
    keep_late: bool = False  # write clicks without a sample to _late/
    label: str = "click"
    # all; negatives: every candidate, clicked or not, with label 0; clicks: clicked ones only. The last two together
    # are the log that losses of delayed feedback want.
    write: Literal["all", "negatives", "clicks"] = "all"


Advance = Callable[[int], None]


def join(options: JoinOptions, advance: Advance = lambda count: None) -> dict[str, Any]:
    """Does one run. Returns the counts of all runs so far. `advance` is called with lines read and written."""
    if options.state is not None:
        return _JoinRun(options, options.state, advance).run()
    options.out.mkdir(parents=True, exist_ok=True)
    if any(options.out.glob("[0-9]*/[0-9][0-9]/part-*")):
        raise AlreadyExists(f"{options.out}: already has samples; choose an empty --out, or add to them with --state")
    with TemporaryDirectory(prefix=".join-", dir=options.out) as state:
        return _JoinRun(options, Path(state), advance).run()


class _JoinRun:
    def __init__(self, options: JoinOptions, state: Path, advance: Advance) -> None:
        if not 0 < options.window_s <= 30 * 86400:
            raise ConfigError(f"the window must be above 0 s and at most 30 days, not {options.window_s:g} s")
        self._options = options
        self._advance = advance
        self._state_path = state
        self._is_whole = options.state is None
        now_s = time.time() if options.now_s is None else options.now_s
        self._due = math.inf if self._is_whole else _floor(now_s - options.window_s - options.delay_s)

    def run(self) -> dict[str, Any]:
        options = self._options
        fixed = {
            "window_s": options.window_s,
            "skew_s": options.skew_s,
            "label": options.label,
            "impressions": bool(options.impressions),
            "out": str(options.out.absolute()),
            "write": None if options.write == "all" else options.write,  # None as in older states, which had no choice
        }
        with JoinState(self._state_path, options.out, fixed) as state:
            self._state = state
            self._counts = JoinCounts(**state.stored.counts)
            before = asdict(self._counts)
            self._lines = SampleLines(
                state.stored.options.get("format") or options.format,
                state.stored.options.get("model") or options.model,
                options.label,
            )
            if not self._is_whole:
                _write_donefiles(state, options.out, state.stored.closed)
            self._read_requests()
            for kind, locations in (("c", options.clicks), ("i", options.impressions)):
                self._read_events(kind, locations)
            state.flush()
            written = self._put_out()
            state.stored.counts = asdict(self._counts)
            state.stored.options |= {"format": self._lines.format, "model": self._lines.model}
            state.commit()
            _write_donefiles(state, options.out, state.stored.closed)
            waiting = sum(size for name, size in state.stored.lengths.items() if name.startswith("requests-"))
            after = asdict(self._counts)
            return {
                **{name: after[name] - before[name] for name in after},
                "files": [str(options.out / name) for name in written],
                "format": self._lines.format,
                "closed": None if math.isinf(state.stored.closed) else state.stored.closed,
                "waiting_bytes": waiting,
                "total": after,
            }

    # Reading: input lines become lines of the state's files.

    def _read_requests(self) -> None:
        stored, counts = self._state.stored, self._counts
        seen = set()
        for path in list_logs(self._options.requests):
            name = log_name(path.absolute())
            seen.add(name)
            offset = stored.files.get(name, [0])[0]
            for after, line in read_lines(open_log(path), offset):
                counts.requests += 1
                stored.files[name] = [after]
                try:
                    request = parse_line(line, path)
                except DataError:
                    counts.bad_requests += 1
                    continue
                if not self._lines.takes(request):
                    counts.other_models += 1
                elif request.time < stored.closed:
                    counts.late_requests += 1
                else:
                    waiting = [request.time, request.id, self._lines.features(request)]
                    bucket = f"requests-{int(_floor(request.time))}-{_partition(request.id)}"
                    self._state.append(bucket, json.dumps(waiting).encode() + b"\n")
                self._advance(1)
        # Forget logs that were removed.
        stored.files = {name: at for name, at in stored.files.items() if name in seen or name[:2] in ("c ", "i ")}

    def _read_events(self, kind: str, locations: tuple[str, ...]) -> None:
        stored, counts = self._state.stored, self._counts
        for location in locations:
            for source in resolve(location):
                name = f"{kind} {source.path}"
                reading = Reading(*stored.files.get(name, []))
                for event in read_events(source, reading, is_final=self._is_whole):
                    if isinstance(event, DataError):
                        counts.bad_events += 1
                        continue
                    if kind == "c":
                        counts.clicks += 1
                    else:
                        counts.impressions += 1
                    line = json.dumps([kind, event.id, event.index, event.time]).encode() + b"\n"
                    self._state.append(self._name("events", _partition(event.id), stored.generation), line)
                    self._advance(1)
                stored.files[name] = [reading.offset, reading.header]

    # Writing: partition by partition, due requests meet their events.

    def _put_out(self) -> list[str]:
        stored = self._state.stored
        due = sorted({int(name.split("-")[1]) for name in stored.lengths if name.startswith("requests-")})
        due = [bucket for bucket in due if bucket + BUCKET_S <= self._due]
        closed = max(stored.closed, self._due)
        part = f"part-{stored.generation + 1:06d}.txt"
        hours = sorted({hour_of(bucket) for bucket in due})
        outputs = [f"{hour}/{part}" for hour in hours]
        late = f"_late/clicks-{stored.generation + 1:06d}.jsonl"
        self._state.intend([*outputs, late])
        with HourFiles(self._options.out, part, late if self._options.keep_late else None) as files:
            for partition in range(PARTITIONS):
                self._put_out_partition(partition, due, closed, files)
            files.commit()
        stored.closed = closed
        stored.hours = sorted({*stored.hours, *files.hours})
        return files.written

    def _put_out_partition(self, partition: int, due: list[int], closed: float, files: HourFiles) -> None:
        state, generation = self._state, self._state.stored.generation
        old_events, old_done = self._name("events", partition, generation), self._name("done", partition, generation)
        events = _Events(json.loads(line) for line in state.lines(old_events))
        done = _Done(b"".join(state.lines(old_done)))
        for bucket in due:
            name = f"requests-{bucket}-{partition}"
            for line in state.lines(name):
                at, request_id, features = json.loads(line)
                number = _number(request_id)
                if number in done:
                    self._counts.duplicate_requests += 1
                    continue
                done.add(number, at)
                self._emit(at, features, events.take(request_id), request_id, files)
            state.forget(name)
            done.settle()
        keep_from = closed - self._options.skew_s - BUCKET_S
        for request_id, waiting in events.items():
            is_out = _number(request_id) in done
            for kind, index, at in waiting:
                if not is_out and at >= keep_from:
                    line = json.dumps([kind, request_id, index, at]).encode() + b"\n"
                    state.append(self._name("events", partition, generation + 1), line)
                elif kind == "c":
                    self._miss("late_clicks" if is_out else "unknown_clicks", request_id, index, at, files)
        # By the previous run, however long ago it was; the next run will know what this one writes.
        horizon = state.stored.closed - 2 * self._options.window_s - self._options.delay_s - 3600
        if data := done.dump(horizon):
            state.append(self._name("done", partition, generation + 1), data)
        state.forget(old_events)
        state.forget(old_done)

    def _emit(self, at: float, features: list[str], events: list[list[Any]], name: str, files: HourFiles) -> None:
        """Writes the samples of one request."""
        options, counts = self._options, self._counts
        clicked, shown = set(), set()
        for kind, index, when in events:
            if kind == "i":
                if when - at >= -options.skew_s and when - at <= options.window_s:
                    shown.add(index)
            elif index >= len(features):
                self._miss("bad_index", name, index, when, files)
            elif when - at < -options.skew_s:
                self._miss("early_clicks", name, index, when, files)
            elif when - at > options.window_s:
                self._miss("late_clicks", name, index, when, files)
            elif index in clicked:
                counts.duplicate_clicks += 1
            else:
                clicked.add(index)
        for index, text in enumerate(features):
            if options.impressions and index not in shown and index not in clicked:
                counts.not_shown += 1
                continue
            is_clicked = index in clicked and options.write != "negatives"
            if options.write == "clicks" and not is_clicked:
                continue
            counts.samples += 1
            counts.clicked += is_clicked
            files.write(at, self._lines.line(text, is_clicked))
        self._advance(len(features))

    def _miss(self, why: str, name: str, index: int, at: float, files: HourFiles) -> None:
        setattr(self._counts, why, getattr(self._counts, why) + 1)
        files.write_late({"id": name, "index": index, "time": at, "why": why})

    @staticmethod
    def _name(kind: str, partition: int, generation: int) -> str:
        return f"{kind}-{partition}-{generation}"


class _Events:
    """Events of one partition by the id of their request."""

    def __init__(self, events: Iterable[list[Any]]) -> None:
        self._by_id: dict[str, list[list[Any]]] = defaultdict(list)
        for kind, request_id, index, at in events:
            self._by_id[request_id].append([kind, index, at])

    def take(self, request_id: str) -> list[list[Any]]:
        """Removes and returns the events of a request, earliest first."""
        return sorted(self._by_id.pop(request_id, []), key=lambda event: float(event[2]))

    def items(self) -> Iterable[tuple[str, list[list[Any]]]]:
        return self._by_id.items()


class _Done:
    """The requests written so far: 16 bytes each, and a set for the current bucket."""

    def __init__(self, data: bytes) -> None:
        self._old: NDArray[Any] = np.sort(np.frombuffer(data, _DONE), order="id")
        self._new: dict[int, float] = {}

    def __contains__(self, number: int) -> bool:
        if number in self._new:
            return True
        at = int(np.searchsorted(self._old["id"], np.uint64(number)))
        return at < len(self._old) and int(self._old["id"][at]) == number

    def add(self, number: int, time_s: float) -> None:
        self._new[number] = time_s

    def settle(self) -> None:
        if self._new:
            new = np.array(list(self._new.items()), dtype=_DONE)
            self._old = np.sort(np.concatenate([self._old, new]), order="id")
            self._new = {}

    def dump(self, since: float) -> bytes:
        self.settle()
        return self._old[self._old["time"] >= since].tobytes()


def _write_donefiles(state: JoinState, out: Path, closed: float) -> None:
    """Writes donefiles of complete hours. They are forgotten with the next commit; writing one twice is harmless."""
    left = []
    for hour in state.stored.hours:
        end = datetime.strptime(hour, "%Y%m%d/%H").replace(tzinfo=UTC).timestamp() + 3600
        if end > closed:
            left.append(hour)
        elif (out / hour).is_dir():  # otherwise the hour has already been removed
            (out / hour / DONEFILE).touch()
    state.stored.hours = left


def _floor(time_s: float) -> float:
    return time_s // BUCKET_S * BUCKET_S


def _number(request_id: str) -> int:
    return _native.xxh64(request_id.encode("utf-8", "surrogatepass"), 1)


def _partition(request_id: str) -> int:
    return _number(request_id) % PARTITIONS
