"""Writes docs/benchmarks/index.md from benchmarks/report.md: every figure on it is one of the report.

usage: python benchmarks/page.py
"""

from __future__ import annotations

from pathlib import Path

from plot import closed_loop, frappe, key_rates, plural, pserver_costs, strategy_costs, training_rates
from read_report import Result, read_report

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks" / "index.md"
HEAD = """# Benchmarks

<!-- Written by benchmarks/page.py from benchmarks/report.md; change these, then run `make charts`. -->

Everything compared on this page took turns in one run on the same cores. Compare ratios, not absolute speeds: those are
of one small virtual machine on one day. Under every table stand command, date, commit and machine; a `+` means that
the commit had local changes. [Methods](method.md) explains what is measured and how, and the
[raw output](../../benchmarks/report.md) has all figures.
"""


def make_page() -> str:
    report = read_report()
    parts = (targets, predictions, lookups, training, distributed, quality, parts_alone)
    return "\n".join([HEAD, *(make(report) for make in parts)]).rstrip() + "\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def image(name: str, title: str) -> str:
    return f"![{title}](../images/benchmarks/{name}.svg)"


def times(value: float) -> str:
    return f"{value:.0f} ×" if value >= 10 else f"{value:.1f} ×" if value >= 2 else f"{value:.2f} ×"


def targets(report: dict[str, Result]) -> str:
    ps, elastic, overload = report["ps"].figures, report["elastic"].figures, report["predict_overload"].figures
    abuse, chaos = report["abuse"].figures, report["chaos"].figures
    unwanted = chaos["wrong"] + chaos["lost"] + chaos["stuck"] + chaos["failed_requests"]
    costs = [cost for name, batch, cost in pserver_costs(report["ps"]) if "pserver" in name and batch == "512"]
    missed = sum(cost > 1.25 for cost in costs)
    pull, push = ps["pserver_pull_vs_table"], ps["pserver_push_vs_table"]
    lr = next(auc for name, _, auc, *_ in frappe(report["quality"]) if name == "lr")
    published = next(best for name, _, _, _, best, _ in frappe(report["quality"]) if name == "lr") or 0
    swap, cube = report["predict_swap"].figures["p99_ratio"], report["cube_swap"].figures["p99_ratio"]
    rows = [
        (
            "CPU per sample with pservers over one process, batches of 512",
            "at most 1.25",
            f"{min(costs):.2f} to {max(costs):.2f}",
            f"**missed** in {missed} of {len(costs)} setups",
        ),
        ("pulls per CPU second of a pserver, over a table in the process", "at least 0.5", f"{pull:.2f}", "met"),
        ("pushes, likewise", "at least 0.5", f"{push:.2f}", "met"),
        ("goodput as processes come and go, standbys", "at least 0.95", f"{elastic['goodput_standby']:.2f}", "met"),
        ("the same, no standbys", "at least 0.85", f"{elastic['goodput']:.2f}", "met"),
        ("answers in time at three times the load", "at least 0.9", f"{overload['goodput_ratio']:.2f}", "met"),
        ("honest p99 under attack, over undisturbed", "at most 2", f"{abuse['p99_ratio']:.1f}", "**missed**"),
        ("honest requests that fail under attack", "0", f"{abuse['honest_failed']:.0f}", "met"),
        ("wrong or failed answers while processes are killed", "0", f"{unwanted:.0f}", "met"),
    ]
    return f"""## Targets and shortfalls

{table(["what", "target", "measured", ""], [list(row) for row in rows])}

The last three are from quick runs of `abuse.py` and `chaos.py`.

Where ElasticCTR is behind:

- From 10 candidates per request on, predictions stay slightly below ONNX Runtime alone.
- While versions change, p99 rises: {swap:.1f} times for predictions, {cube:.1f} times for row lookups.
- A table's pull, finding the rows included, is slower than NumPy's gather of known row numbers.
- `lr` is {published - lr:.4f} below the published AUC on Frappe.
- After three epochs on Frappe, 9 of 12 models have a lower AUC than FuxiCTR's; at the end of training that gap is gone.
"""


def predictions(report: dict[str, Result]) -> str:
    result, swap, overload = report["predict"], report["predict_swap"], report["predict_overload"]
    rates, figures = closed_loop(result), result.figures
    head = ["candidates per request", *map(str, rates)]
    peers = {"fastapi": "FastAPI on uvicorn", "bentoml": "BentoML", "rayserve": "Ray Serve"}
    rows = [["**ElasticCTR**, requests/s", *(f"{one['elasticctr']:,.0f}" for one in rates.values())]]
    rows += [[f"{name}, requests/s", *(f"{one[key]:,.0f}" for one in rates.values())] for key, name in peers.items()]
    rows.append(["over the best of them", *(f"**{times(figures[f'vs_best_peer_{n}'])}**" for n in rates)])
    rows.append(["p99 over the best peer's, at half of its rate", *(f"{figures[f'p99_ratio_{n}']:.2f}" for n in rates)])
    rows.append(["predictions/s over ONNX Runtime alone", *(f"{figures[f'vs_onnxruntime_{n}']:.2f}" for n in rates)])
    changes = [
        ["from publishing to answering, median", f"{swap.figures['activation_s']:.2f} s"],
        ["a rollback, median", f"{swap.figures['rollback_ms']:.1f} ms"],
        ["failed requests; answers of mixed versions", f"{swap.figures['failed']:.0f}; {swap.figures['mixed']:.0f}"],
        ["p99 while versions change, over before", f"{swap.figures['p99_ratio']:.2f}"],
    ]
    load = [
        ["answers in time at three times the load, over capacity", f"{overload.figures['goodput_ratio']:.2f}"],
        ["time to a refusal, p99", f"{overload.figures['refusal_p99_ms']:.1f} ms"],
        ["capacity right afterwards, over before", f"{overload.figures['recovered_ratio']:.2f}"],
    ]
    return f"""## Predictions

Wide & Deep with a million rows; plain JSON; server on one core, load on the other. Peers run the same graph in ONNX
Runtime with the same rows in Redis.

{image("predict", "Requests per second by candidates per request")}

{table(head, rows)}

{result.source}

### Activations under load

{table(["20 activations and 5 rollbacks", ""], changes)}

{swap.source}

### Overload

{table(["three times the capacity offered", ""], load)}

{overload.source}
"""


def lookups(report: dict[str, Result]) -> str:
    result, swap, build = report["cube"], report["cube_swap"], report["cube_build"]
    rates, figures = key_rates(result), result.figures
    names = {
        "cube": "**Cube**",
        "cube redis": "Cube, Redis port",
        "redis": "Redis 7.0.15",
        "hash map": "hash map in the client",
    }
    rows = [[f"{name}, million keys/s", *(f"{one[key]:.3g}" for one in rates.values())] for key, name in names.items()]
    sizes = {
        "40 bytes, 1 M rows": "",
        "40 bytes, 1 M rows, Zipf": "_40b_1m_zipf",
        "256 bytes, 1 M rows": "_256b_1m_uniform",
        "256 bytes, 1 M rows, Zipf": "_256b_1m_zipf",
        "40 bytes, 20 M rows": "_40b_20m_uniform",
        "40 bytes, 20 M rows, Zipf": "_40b_20m_zipf",
    }
    for name, suffix in sizes.items():
        over = [figures.get(f"vs_redis_{n}{suffix}", one["cube"] / one["redis"]) for n, one in rates.items()]
        rows.append([f"over Redis: {name}", *map(times, over)])
    bytes_, redis = result.find(r"1,000,000 x  40 B: ([\d.]+) bytes per key above the row, Redis ([\d.]+);")[0]
    more = [
        ["p99 over Redis' at half of Redis' rate, 100 keys", f"{figures['p99_ratio_100']:.2f}"],
        ["bytes per key above the row; Redis", f"{bytes_}; {redis}"],
        ["building index files of 20 M rows", f"{build.figures['build_rows_s'] / 1e6:.1f} M rows/s"],
    ]
    live = [
        ["from publishing to live on all servers, median", f"{swap.figures['publish_live_s']:.2f} s"],
        ["from a training step to its rows being served, median", f"{swap.figures['delta_visible_s']:.2f} s"],
        ["failed lookups; answers of mixed versions", f"{swap.figures['errors']:.0f}; {swap.figures['mixed']:.0f}"],
        ["p99 while versions change, over before", f"{swap.figures['p99_ratio']:.1f}"],
    ]
    return f"""## Row lookups

Cube against Redis (MGET, pipelined, with a C client and the best of seven shapes each), one server core, uniform keys
unless Zipf is named. The limit is a hash map in the asking process, without network or protocol.

{image("cube", "Million keys per second by keys per lookup")}

{table(["keys per lookup", *map(str, rates)], rows)}

{table(["", ""], more)}

{result.source}

{build.source}

### Versions under load

{table(["20 bases and 100 deltas", ""], live)}

{swap.source}
"""


def training(report: dict[str, Result]) -> str:
    result, later = report["train"], report["train_ours_and_tower"]
    cells = ("fp32, batch 4096", "fp32, batch 512", "bf16, batch 4096", "bf16, batch 512")
    rates = [training_rates(result, cell) for cell in cells]
    again = [training_rates(later, cell) for cell in cells]
    keys = [cell.replace(", batch ", "_") for cell in cells]
    peers = {
        "torchrec tbe": "TorchRec",
        "torch lazy_compiled": "PyTorch, compiled",
        "torch bag": "PyTorch, EmbeddingBag",
        "paddle fused": "PaddlePaddle",
        "deepctr wdl": "DeepCTR-Torch",
        "fuxictr wdl": "FuxiCTR",
    }
    ours = {
        "ours parsed": "**ElasticCTR**, batches in memory",
        "ours cache": "ElasticCTR, cached sample set",
        "ours text": "ElasticCTR, slot text",
        "mlp compiled": "the tower alone in PyTorch, compiled",
    }

    def line(name: str, key: str, found: list[dict[str, float]]) -> list[str]:
        return [name, *(f"{one[key] / 1e3:.0f}" if key in one else "–" for one in found)]

    rows = [line(name, key, rates) for key, name in {**ours, **peers}.items()]
    best = [
        f"**{times(result.figures[f'vs_best_peer_{key}'])}**" if f"vs_best_peer_{key}" in result.figures else "–"
        for key in keys
    ]
    rows.append(["over the best peer", *best])
    rows.append(["over the tower alone", *(times(result.figures[f"vs_mlp_{key}"]) for key in keys)])
    second = [line(name, key, again) for key, name in ours.items()]
    second.append(["over the tower alone", *(times(later.figures[f"vs_mlp_{key}"]) for key in keys)])
    auc = result.figures
    return f"""## Training in one process

PaddleRec's Wide & Deep (26 slots, 13 floats, dim 9, tower 512-256-128-32, Adam) on two cores, in thousands of samples
per second. The dense tower alone in PyTorch is the limit of everything built on PyTorch. TorchRec uses row-wise Adagrad
and 12 columns instead of Adam and 9. In bf16, ElasticCTR's towers use AMX, which oneDNN cannot on this machine.

{image("train", "Thousand samples per second by contender")}

{table(["", *cells], rows)}

AUC after one epoch: {auc["auc_ours"]:.4f}, PyTorch {auc["auc_torch"]:.4f}.

{result.source}

A later run, after further work on ElasticCTR, without the peers:

{table(["", *cells], second)}

{later.source}
"""


def strategy_rows(report: dict[str, Result], noise: float) -> list[list[str]]:
    rows = []
    for name, (cost, size) in strategy_costs(report).items():
        strategy, _, variant = name.replace("half_async", "half-async").partition("_")
        shown = f"`{strategy.replace('-', '_')}`" + (f", {variant}" if variant else "")
        verdict = "within noise" if abs(cost) <= noise else "higher AUC" if cost < 0 else "lower AUC"
        rows.append([shown, f"{cost:+.4f}", verdict, f"{size:,.0f}"])
    return rows


def distributed(report: dict[str, Result]) -> str:
    ps, elastic, model = report["ps"], report["elastic"], report["scale_model"]
    costs = [
        [plural(name), batch, f"{cost:.2f}", "" if "pserver" not in name else "met" if cost <= 1.25 else "**missed**"]
        for name, batch, cost in pserver_costs(ps)
    ]
    noise = report["strategies"].figures["noise"]
    rows = strategy_rows(report, noise)
    goodput = [
        ["with standbys", f"{elastic.figures['goodput_standby']:.2f}", f"{elastic.figures['pause_s_standby']:.1f} s"],
        ["without", f"{elastic.figures['goodput']:.2f}", f"{elastic.figures['pause_s']:.1f} s"],
    ]
    sizes = [
        [str(n), f"{model.figures[f'pservers_{n}']:.0f}", f"{model.figures[f'samples_per_s_{n}'] / 1e6:.1f} M"]
        for n in (10, 100, 1000)
    ]
    return f"""## Distributed training

### CPU per sample

Two cores hold all processes, so CPU time is compared, not speed. The target is at most 1.25 times one process.
PaddlePaddle 2.6.2's parameter server needs {times(ps.figures["vs_paddle_ps"])} as much CPU per sample.

{image("pservers", "CPU per sample over that of one process")}

{table(["setup", "batch", "CPU per sample", "target"], costs)}

{ps.source}

### Strategies

AUC cost against one process after one pass over 180,000 samples, five seeds; differences up to {noise:.4f} are noise.
[Strategies](../concepts/strategies.md) helps you choose.

{image("strategies", "AUC cost and bytes per sample by strategy")}

{table(["strategy", "AUC cost", "", "bytes per sample"], rows)}

{report["strategies"].source}

{report["strategies_bf16"].source} The rows of `async` are from this run.

### Processes that come and go

Useful over possible samples while trainers join, leave and are killed and a pserver is killed.

{table(["", "goodput", "longest pause"], goodput)}

{elastic.source}

### Simulated clusters

A simulation of machines with 32 cores and 25 Gbit/s, within {model.figures["error"]:.0%} of real runs with up to four
trainers. These are predictions, not measurements.

{table(["trainers of 8 cores", "pservers they need", "samples/s"], sizes)}

{model.source}
"""


def quality(report: dict[str, Result]) -> str:
    result, peers = report["quality"], report["quality_peers"]
    rows = [
        [f"`{name}`", width, f"{auc:.5f}", f"{sd:.5f}", f"{best:.4f}", verdict]
        for name, width, auc, sd, best, verdict in frappe(result)
        if best is not None
    ]
    others = [
        ["FuxiCTR", times(peers.figures["speed_vs_fuxictr"]), f"{peers.figures['auc_gap_fuxictr']:+.4f}"],
        ["DeepCTR-Torch", times(peers.figures["speed_vs_deepctr"]), f"{peers.figures['auc_gap_deepctr']:+.4f}"],
    ]
    return f"""## Quality

Validation AUC on Frappe, five seeds, beside the test AUC that BARS publishes. The widths of FinalMLP and FinalNet were
picked on this validation set; at the published width both tie.

{image("quality", "AUC on Frappe beside published figures")}

{table(["model", "width", "AUC", "± sd", "published", ""], rows)}

{result.source}

### Beside FuxiCTR and DeepCTR-Torch

The same files, seeds and recipe. The mean AUC difference to FuxiCTR is mostly that of `fm`; without `fm` and `lr` it is
+0.0002.

{table(["peer", "its CPU time per epoch over ours", "AUC of ours minus its"], others)}

*`python benchmarks/quality_peers.py`, 2026-11-16; AUC commit eeb7423, one NVIDIA H200; CPU time commit 7e2fc91, two
cores of an AMD EPYC.*
"""


def parts_alone(report: dict[str, Result]) -> str:
    parse, rows, tower, admission = (report[name] for name in ("parse", "table", "tower", "admission"))
    steps = [value for key, value in rows.figures.items() if key.startswith("step_vs_torch_")]
    pulls = [value for key, value in rows.figures.items() if key.startswith("pull_vs_numpy_")]
    pushes = [value for key, value in rows.figures.items() if key.startswith("push_vs_numpy_")]
    alone = [
        [
            "parsing slot text, one core",
            f"{int(parse.figures['slot_mb_s_core'])} MB/s",
            f"{times(parse.figures['vs_polars'])} polars, {times(parse.figures['vs_pyarrow'])} pyarrow",
        ],
        ["parsing Criteo text, one core", f"{int(parse.figures['criteo_mb_s_core'])} MB/s", "at least the same"],
        ["a table's push, 1 to 50 M rows", "", f"{min(pushes):.0f} to {max(pushes):.0f} × NumPy's"],
        [
            "a table's pull, feasigns looked up",
            "",
            f"{min(pulls):.2f} to {max(pulls):.2f} of NumPy's gather of known row numbers",
        ],
        ["a table's step", "", f"{min(steps):.1f} to {max(steps):.1f} × `EmbeddingBag` with `SparseAdam`"],
        ["memory of a row above weights and state", f"{rows.figures['overhead_bytes_per_row']:.1f} bytes", ""],
        ["a tower's step, fp32, 4096", "", f"{times(tower.figures['vs_torch_fp32_4096'])} PyTorch's best"],
        ["a tower's step, bf16, 4096", "", f"{times(tower.figures['vs_torch_bf16_4096'])} PyTorch's best"],
    ]
    rare = admission.figures
    counts = [[str(n), f"{rare[f'table_mib_count_{n}']:,.0f}", f"{rare[f'auc_count_{n}']:.4f}"] for n in (1, 2, 5, 10)]
    return f"""## Parts alone

{table(["part", "speed", "compared with"], alone)}

{parse.source}

{rows.source}

{tower.source}

### Rare ids

A log of 2.5 million samples with 23 million different ids: memory and AUC when an id gets a row at its n-th occurrence.

{table(["n", "table, MiB", "AUC"], counts)}

{admission.source}
"""


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
