"""One self-contained HTML page about a run, made from the files in its run directory alone.

Images are inlined, nothing is fetched, no script runs, every value is escaped. docs/reference/run-directory.md says
which files are read; a run that was killed lacks some of them and still gets a report of what is there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from elasticctr.errors import DataError, NotFound
from elasticctr.storage.atomic import write_atomic
from elasticctr.train.events import Event, read_events
from elasticctr.train.metrics.label_metrics import LABELS, split_labels
from elasticctr.train.report.explain_section import describe_slots
from elasticctr.train.report.page import PAGE
from elasticctr.train.report.segments import describe_confidence, describe_segments
from elasticctr.train.report.tables import make_table, show

Values = Mapping[str, Any]

PLOTS = {
    "loss.png": "Loss of each interval before the model learnt from it, and of evaluated splits.",
    "auc.png": "AUC of predictions made before learning, and of evaluated splits.",
    "calibration.png": "Actual over predicted click rate in bins of equal weight; on the line is perfect.",
    "roc.png": "True over false positive rate of the final model.",
    "importance.png": "Logloss gained by shuffling a slot's values, with 95 % intervals; grey may be chance.",
    "scores.png": "Predictions for clicked and unclicked samples.",
}
HEADLINES = {
    "auc": "AUC",
    "gauc": "GAUC",
    "logloss": "logloss",
    "ne": "NE",
    "copc": "COPC",
    "ctr": "CTR",
    "predicted_ctr": "predicted CTR",
}


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of a run directory; missing ones are empty."""

    path: Path
    config: str | None
    environment: Values
    events: Sequence[Event]
    metrics: Mapping[str, Values]  # by split
    explained: Values  # explain.json

    @classmethod
    def load(cls, run_dir: str | Path) -> RunFiles:
        path = Path(run_dir)
        if not path.is_dir():
            raise NotFound(f"{path}: there is no such run directory")
        if not (path / "events.jsonl").exists() and not (path / "metrics.json").exists():
            raise NotFound(f"{path}: neither events.jsonl nor metrics.json is here; is this a run directory?")
        events = read_events(path / "events.jsonl") if (path / "events.jsonl").exists() else []
        config = path / "job.yaml"
        return cls(
            path,
            config.read_text(errors="replace") if config.exists() else None,
            _read_json(path / "environment.json"),
            events,
            {name: values for name, values in _read_json(path / "metrics.json").items() if isinstance(values, dict)},
            _read_json(path / "explain.json"),
        )

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["event"] == kind]


def write_report(run_dir: str | Path) -> Path:
    """Draws the plots and writes `report.html`. Returns its path."""
    from elasticctr.train.report.explain_plot import plot_importance
    from elasticctr.train.report.plots import save_plot, write_plots

    run = RunFiles.load(run_dir)
    plots = write_plots(_events_by_label(run.events), split_labels(run.metrics), run.path / "plots")
    plots += save_plot(plot_importance(run.explained), run.path / "plots" / "importance.png")
    path = run.path / "report.html"
    write_atomic(path, render_report(run, plots).encode())
    return path


def render_report(run: RunFiles, plots: Sequence[Path]) -> str:
    end = (run.of_kind("end") or [{}])[-1]
    sections = [
        ("Warnings", _warnings(run)),
        ("Metrics", _metrics_table(run.metrics)),
        ("Curves", "".join(_figure(plot) for plot in plots)),
        ("Calibration", _calibration_table(run.metrics)),
        ("Confidence", describe_confidence(run.metrics)),
        ("Worst segments", describe_segments(run.metrics)),
        ("Slots", describe_slots(run.explained)),
        ("Time and throughput", _facts(_timing(run, end))),
        ("Data", make_table(("split", "files", "rows", "bad lines"), _data_rows(run))),
        ("Checkpoints", make_table(("step", "samples", "path"), _checkpoint_rows(run))),
        ("Go on from here", _commands(run)),
        ("Configuration", f"<pre>{escape(run.config)}</pre>" if run.config else ""),
        ("Environment", _facts(_flatten(run.environment))),
    ]
    name = run.path.resolve().name
    return Template(PAGE).substitute(
        title=escape(name),
        subtitle=escape(_subtitle(run, end)),
        headlines=_headlines(run.metrics),
        sections="".join(f"<section><h2>{escape(title)}</h2>{body}</section>" for title, body in sections if body),
    )


def _warnings(run: RunFiles) -> str:
    texts = dict.fromkeys(str(event["text"]) for event in run.of_kind("warning") if event.get("text"))
    return "".join(f"<p class=warning>{escape(text)}</p>" for text in texts)


def main_split(metrics: Mapping[str, Values]) -> str | None:
    """The split a reader wants to see first: the one the model was not chosen on, if it is there."""
    for name in ("test", "validation", "valid", "eval"):
        if name in metrics:
            return name
    return next(iter(metrics), None)


def _subtitle(run: RunFiles, end: Event) -> str:
    parts = [str(run.environment["time"])] if run.environment.get("time") else []
    parts.append(str(end.get("reason", "finished")) if end else "not finished: this run has no end event")
    if run.environment.get("host"):
        parts.append(f"on {run.environment['host']}")
    return " · ".join(parts)


def _headlines(metrics: Mapping[str, Values]) -> str:
    split = main_split(metrics)
    if split is None:
        return "<p>No final metrics yet.</p>"
    return "".join(
        f"<p>Final model on <b>{escape(name)}</b></p><div class=cards>{_cards(values)}</div>"
        for name, values in split_labels({split: metrics[split]}).items()
    )


def _cards(values: Values) -> str:
    return "".join(
        f"<div class=card><b>{show(values[key])}</b><span>{escape(label)}</span></div>"
        for key, label in HEADLINES.items()
        if values.get(key) is not None
    )


def _metrics_table(metrics: Mapping[str, Values]) -> str:
    metrics = split_labels(metrics)
    names = dict.fromkeys(k for values in metrics.values() for k, v in values.items() if not isinstance(v, dict | list))
    return make_table(
        ("metric", *metrics), ((name, *(values.get(name) for values in metrics.values())) for name in names)
    )


def _calibration_table(metrics: Mapping[str, Values]) -> str:
    split = main_split(metrics)
    if split is None:
        return ""
    each = split_labels({split: metrics[split]}).items()
    return "".join(_calibration_rows(name, values["calibration"]) for name, values in each if values.get("calibration"))


def _calibration_rows(split: str, rows: Iterable[Values]) -> str:
    cells = (
        (
            f"{show(row['lower'])} – {show(row['upper'])}",
            row["weight"],
            row["positives"],
            row["predicted"],
            row["actual"],
            row["actual"] / row["predicted"] if row["predicted"] else None,
        )
        for row in rows
    )
    header = ("score", "weight", "clicks", "predicted CTR", "actual CTR", "COPC")
    return f"<p>On {escape(split)}, in bins of equal weight.</p>" + make_table(header, cells)


def _timing(run: RunFiles, end: Event) -> list[tuple[str, Any]]:
    facts: list[tuple[str, Any]] = []
    if run.events:
        last = run.events[-1]
        wall_s = last["time"] - run.events[0]["time"] if "time" in last and "time" in run.events[0] else None
        facts += [("steps", last.get("step")), ("samples", last.get("samples")), ("epochs", last.get("epoch"))]
        facts += [("seconds", end.get("seconds", wall_s))]
    speeds = sorted(e["samples_per_s"] for e in run.of_kind("train") if e.get("samples_per_s") is not None)
    if speeds:
        facts += [("samples per second, median", round(speeds[len(speeds) // 2]))]
        facts += [("samples per second, slowest – fastest", f"{speeds[0]:,.0f} – {speeds[-1]:,.0f}")]
    known = {"event", "time", "step", "epoch", "samples", "seconds", "reason"}
    facts += [(key.replace("_", " "), value) for key, value in end.items() if key not in known]
    return facts


def _data_rows(run: RunFiles) -> list[tuple[Any, ...]]:
    last = {str(event.get("split")): event for event in run.of_kind("data")}
    return [(split, e.get("files"), e.get("rows"), e.get("bad_lines")) for split, e in last.items()]


def _checkpoint_rows(run: RunFiles) -> list[tuple[Any, ...]]:
    """Those that rotation has left."""
    found = [(e.get("step"), e.get("samples"), e.get("path")) for e in run.of_kind("checkpoint")]
    return [row for row in found if row[2] is None or (run.path / str(row[2])).exists()]


def _commands(run: RunFiles) -> str:
    """As the trainer wrote them into its start event: it knows its own flags."""
    start = (run.of_kind("start") or [{}])[-1]
    commands = start.get("commands")
    if not isinstance(commands, dict):
        return ""
    return "".join(f"<p>{escape(str(what))}</p><pre>{escape(str(line))}</pre>" for what, line in commands.items())


def _events_by_label(events: Sequence[Event]) -> list[Event]:
    """Events of several labels once for each of them, as plots draw them."""
    found: list[Event] = []
    for event in events:
        each = event.get(LABELS)
        if not isinstance(each, dict):
            found.append(event)
            continue
        found += [{**event, **values, "label": name} for name, values in each.items()]
    return found


def _figure(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = escape(PLOTS.get(path.name, path.stem))
    return f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'


def _facts(facts: Iterable[tuple[str, Any]]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{show(v)}</td></tr>" for name, v in facts if v is not None)
    return f"<div class=wide><table class=facts><tbody>{rows}</tbody></table></div>" if rows else ""


def _flatten(values: Values) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in values.items():
        label = key.replace("_", " ")
        flat += [(f"{name}", v) for name, v in value.items()] if isinstance(value, dict) else [(label, value)]
    return flat


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise DataError(f"not valid JSON ({e}); remove the file to make a report without it", path) from None
    if not isinstance(value, dict):
        raise DataError("a JSON object is expected here; remove the file to make a report without it", path)
    return value
