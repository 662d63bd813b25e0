"""The page and plots of a search: scores over trials, validation curves, score by setting, importance of settings."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from matplotlib.figure import Figure

from elasticctr.storage.atomic import write_atomic
from elasticctr.train.report.page import PAGE
from elasticctr.train.report.plots import COLORS, FAINT, new_figure
from elasticctr.tune.settings import TuneSettings
from elasticctr.tune.study import StudyResult, Tried


def write_report(found: StudyResult, settings: TuneSettings, importances: Mapping[str, float]) -> Path:
    """`report.html` and `plots/*.png` of a study directory. Returns the page's path."""
    folder = found.study_dir / "plots"
    folder.mkdir(parents=True, exist_ok=True)
    done = [t for t in found.tried if t.score is not None]
    figures = {"history.png": _plot_history(done, settings.metric), "curves.png": _plot_curves(found, settings.metric)}
    figures |= {f"by-{key}.png": _plot_by_setting(done, key, settings) for key in settings.space}
    shown = []
    for name, figure in figures.items():
        if figure is None:
            (folder / name).unlink(missing_ok=True)
            continue
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=130)
        write_atomic(folder / name, image.getvalue())
        data = base64.b64encode(image.getvalue()).decode()
        shown.append(f'<figure><img src="data:image/png;base64,{data}" alt="{escape(name)}"></figure>')
    sections = {
        "Best": _table(("setting", "value"), found.best.values.items()) if found.best else "",
        "Importance": _table(("setting", "share"), ((k, f"{v:.3f}") for k, v in importances.items())),
        "Curves": "".join(shown),
        "Trials": _table(("trial", "state", settings.metric, *settings.space, "note"), _rows(found.tried, settings)),
    }
    page = Template(PAGE).substitute(
        title=escape(found.study_dir.resolve().name),
        subtitle=escape(_subtitle(found, settings)),
        headlines=_headline(found, settings),
        sections="".join(f"<section><h2>{title}</h2>{body}</section>" for title, body in sections.items() if body),
    )
    path = found.study_dir / "report.html"
    write_atomic(path, page.encode())
    return path


def _subtitle(found: StudyResult, settings: TuneSettings) -> str:
    counts = {state: sum(t.state == state for t in found.tried) for state in ("complete", "pruned", "failed")}
    parts = [f"{count} {state}" for state, count in counts.items() if count]
    return f"{', '.join(parts) or 'no trials'} · {settings.job}{'' if found.is_finished else ' · not finished'}"


def _headline(found: StudyResult, settings: TuneSettings) -> str:
    if found.best is None:
        return "<p>No trial has finished yet.</p>"
    return (
        f"<div class=cards><div class=card><b>{found.best.score:.5f}</b><span>{settings.metric}, trial "
        f"{found.best.number}</span></div></div>"
    )


def _rows(tried: Sequence[Tried], settings: TuneSettings) -> Iterable[tuple[Any, ...]]:
    sign = 1 if settings.metric == "logloss" else -1
    for t in sorted(tried, key=lambda t: (t.score is None, sign * (t.score or 0.0), t.number)):
        score = "" if t.score is None else f"{t.score:.5f}"
        yield (t.number, t.state, score, *(t.values.get(key, "") for key in settings.space), t.reason or "")


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    body = "".join(f"<tr>{''.join(f'<td>{escape(_show(cell))}</td>' for cell in row)}</tr>" for row in rows)
    if not body:
        return ""
    return f"<div class=wide><table><tr>{''.join(f'<th>{escape(h)}</th>' for h in head)}</tr>{body}</table></div>"


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def _plot_history(done: Sequence[Tried], metric: str) -> Figure | None:
    if not done:
        return None
    figure, axes = new_figure("Scores", "trial", metric)
    axes.plot([t.number for t in done], [t.score or 0.0 for t in done], "o", color=COLORS[0], markersize=5)
    best, line = None, []
    for t in done:
        score = t.score or 0.0
        best = score if best is None else min(best, score) if metric == "logloss" else max(best, score)
        line.append(best)
    axes.step([t.number for t in done], line, where="post", color=COLORS[1], linewidth=1.6, label="best so far")
    axes.legend(frameon=False, fontsize=9)
    return figure


def _plot_curves(found: StudyResult, metric: str) -> Figure | None:
    if not any(t.evaluations for t in found.tried):
        return None
    figure, axes = new_figure("Validation results while training", "evaluation", metric)
    for t in found.tried:
        points = sorted(t.evaluations.items())
        is_best = found.best is not None and t.number == found.best.number
        color = COLORS[1] if is_best else COLORS[0] if t.state == "complete" else FAINT
        axes.plot(*zip(*points, strict=True), color=color, linewidth=2 if is_best else 0.9) if points else None
    return figure


def _plot_by_setting(done: Sequence[Tried], key: str, settings: TuneSettings) -> Figure | None:
    if len(done) < 2:
        return None
    parameter = settings.space[key]
    figure, axes = new_figure(f"{settings.metric} by {key}", key, settings.metric)
    scores = [t.score or 0.0 for t in done]
    if parameter.choice is not None:
        names = [_show(value) for value in parameter.choice]
        axes.plot([names.index(_show(t.values[key])) for t in done], scores, "o", color=COLORS[0], alpha=0.7)
        axes.set_xticks(range(len(names)), names)
    else:
        axes.plot([t.values[key] for t in done], scores, "o", color=COLORS[0], alpha=0.7)
        if parameter.log is not None:
            axes.set_xscale("log")
    return figure
