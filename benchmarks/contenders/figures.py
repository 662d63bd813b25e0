"""Turns windows into figures: medians, ratios to the limit, the table for people and the keys for machines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from typing import Any

from contenders.roster import Cell, Contender


@dataclass
class Record:
    """Everything one contender did in one cell."""

    contender: Contender
    cell: Cell
    version: str = ""
    windows: list[dict[str, float]] = field(default_factory=list)
    scores: list[dict[str, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failure: str | None = None

    @property
    def speed(self) -> float | None:
        """Median samples/s; None for one that died, even late: half a run does not count."""
        speeds = [window["samples_per_s"] for window in self.windows]
        return median(speeds) if speeds and self.failure is None else None

    @property
    def aucs(self) -> list[float]:
        return [score["auc"] for score in self.scores]


def find_limit(records: Iterable[Record], cell: Cell) -> float | None:
    """The faster of the MLP's variants."""
    speeds = [r.speed for r in records if r.cell == cell and r.contender.stack == "mlp" and r.speed]
    return max(speeds, default=None)


def print_table(records: list[Record], cell: Cell) -> None:
    limit = find_limit(records, cell)
    print(f"\n{cell.precision}, batch {cell.batch_size}")
    print(
        f"  {'contender':<22}{'samples/s':>11}  {'min – max':<19}{'ms/step':>9}{'of limit':>10}{'others':>8}  version"
    )
    for record in (r for r in records if r.cell == cell):
        name = f"  {record.contender.name:<22}"
        if record.speed is None:
            print(f"{name}did not run: {record.failure}")
            continue
        speeds = [window["samples_per_s"] for window in record.windows]
        spread = f"{min(speeds):,.0f} – {max(speeds):,.0f}"
        share = f"{record.speed / limit:.3f}" if limit else "-"
        step_ms = median(window["ms_per_step"] for window in record.windows)
        others = max(window["other_cores"] for window in record.windows)
        print(f"{name}{record.speed:>11,.0f}  {spread:<19}{step_ms:>9.2f}{share:>10}{others:>8.2f}  {record.version}")
        for note in filter(None, [record.contender.note, *record.notes]):
            print(f"    {note}")


def summarise(records: list[Record]) -> dict[str, Any]:
    """The keys of the last line. A figure that could not be measured is null."""
    cells = sorted({record.cell for record in records})
    figures: dict[str, Any] = {}
    for cell in cells:
        figures |= {f"{key}_{cell}": value for key, value in _compare(records, cell)}
    for key in ("text_vs_parsed", "cache_vs_parsed", "vs_best_peer"):
        values = [figures[f"{key}_{cell}"] for cell in cells if figures[f"{key}_{cell}"] is not None]
        figures[key] = min(values, default=None)
    figures |= _compare_quality(records)
    figures["samples_per_s"] = {f"{r.contender.name} {r.cell}": round(r.speed) for r in records if r.speed}
    figures["failed"] = {f"{r.contender.name} {r.cell}": r.failure for r in records if r.failure}
    return figures


def _compare(records: list[Record], cell: Cell) -> Iterator[tuple[str, float | None]]:
    here = [record for record in records if record.cell == cell]
    ours = {r.contender.variant: r.speed for r in here if r.contender.stack == "ours"}
    peers = [r.speed for r in here if r.contender.is_peer and r.speed]
    parsed = ours.get("parsed")
    yield "vs_mlp", _divide(parsed, find_limit(records, cell))
    yield "text_vs_parsed", _divide(ours.get("text"), parsed)
    yield "cache_vs_parsed", _divide(ours.get("cache"), parsed)
    yield "vs_best_peer", _divide(parsed, max(peers, default=None))


def _compare_quality(records: list[Record]) -> dict[str, Any]:
    """Ours in either precision against float32 PyTorch at the same batch size; noise is the spread over its seeds."""
    judged = {(r.contender.stack, r.cell): r.aucs for r in records if r.aucs}
    details = {
        f"{stack}_{cell}": {
            "mean": round(mean(aucs), 5),
            "sd": round(stdev(aucs), 5) if len(aucs) > 1 else None,
            "seeds": len(aucs),
        }
        for (stack, cell), aucs in judged.items()
    }
    gaps = [
        round(mean(aucs) - mean(judged["torch", Cell("fp32", cell.batch_size)]), 5)
        for (stack, cell), aucs in judged.items()
        if stack == "ours" and ("torch", Cell("fp32", cell.batch_size)) in judged
    ]
    largest = max((cell.batch_size for _, cell in judged), default=0)
    ours, torch = (details.get(f"{stack}_fp32_{largest}", {}) for stack in ("ours", "torch"))
    return {
        "auc_ours": ours.get("mean"),
        "auc_torch": torch.get("mean"),
        "auc_noise": torch.get("sd"),
        "auc_worst_gap": min(gaps, default=None),
        "auc": details,
    }


def _divide(one: float | None, other: float | None) -> float | None:
    return round(one / other, 4) if one and other else None
