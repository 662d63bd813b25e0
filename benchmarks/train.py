"""How fast PaddleRec's Wide & Deep trains here: ours, the limit of the hardware, and the peers, side by side.

Every contender is a separate process; they take turns to train for a few seconds in several rounds, so that a slow
minute of the machine affects all of them. `contenders/roster.py` lists the contenders, `docs/benchmarks/method.md`
explains the figures. Prints tables, then one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from contenders.environments import EnvironmentSetupError, prepare
from contenders.figures import Record, print_table, summarise
from contenders.process import SCRIPTS, WITHOUT_AMX, Worker, WorkerError
from contenders.roster import Cell, Contender, choose
from measure import WORK, stamp

CELLS = [Cell(precision, size) for precision in ("fp32", "bf16") for size in (4096, 512)]


@dataclass(frozen=True)
class Plan:
    contenders: list[Contender]
    cells: list[Cell]
    rounds: int
    seconds: float
    rows: int
    seeds: int
    foreign_cores: float  # a window in which other processes used more is noisy
    window_tries: int  # how often a noisy window is repeated
    has_warm_up_round: bool
    is_quick: bool


class Bench:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._records: list[Record] = []
        self._without_amx: set[str] = set()  # names of contenders that need it

    def run(self) -> dict[str, object]:
        _say(f"making {self._plan.rows:,} rows under {WORK}")
        self._folder = make_clicks(self._plan.rows)
        about = json.loads((self._folder / "about.json").read_text())
        self._pythons = self._prepare_environments()
        for cell in self._plan.cells:
            self._run_cell(cell)
            print_table(self._records, cell)
        return summarise(self._records) | {
            "noisy_windows": self._count_noisy(),
            "auc_best": about["best_auc"],
            "rounds": self._plan.rounds,
            "window_s": self._plan.seconds,
            "rows": self._plan.rows,
            "quick": self._plan.is_quick,
        }

    def _count_noisy(self) -> int:
        windows = [window for record in self._records for window in record.windows]
        noisy = sum(window["other_cores"] > self._plan.foreign_cores for window in windows)
        if noisy:
            print(f"\n{noisy} of {len(windows)} windows had company on the cores: run again")
        return noisy

    def _prepare_environments(self) -> dict[str, Path | str]:
        """Interpreters by environment, or the reason if one could not be made."""
        made: dict[str, Path | str] = {}
        for name in dict.fromkeys(c.environment for c in self._plan.contenders if c.environment):
            _say(f"environment {name}")
            try:
                made[name] = prepare(WORK / "venvs", name)
            except (EnvironmentSetupError, OSError) as failure:
                made[name] = f"no environment: {failure}"
        return made

    def _run_cell(self, cell: Cell) -> None:
        plan = self._plan
        _say(f"{cell}: starting workers")
        workers = self._start_workers(cell)
        try:
            for turn in range(plan.rounds + plan.has_warm_up_round):
                is_warm_up = plan.has_warm_up_round and turn == 0
                _say(f"{cell}: {'warm-up' if is_warm_up else f'round {turn + 1 - plan.has_warm_up_round}'}")
                # Each round starts with another contender, so that none always follows the same neighbour.
                first = turn % max(len(workers), 1)
                for record, worker in workers[first:] + workers[:first]:
                    self._take_turn(record, worker, is_warm_up)
            if not (plan.is_quick and cell.precision == "bf16"):
                for record, worker in workers:
                    self._score(record, worker)
        finally:
            for _, worker in workers:
                worker.quit()
            for _, worker in workers:
                worker.join()

    def _start_workers(self, cell: Cell) -> list[tuple[Record, Worker]]:
        takes_part = [c for c in self._plan.contenders if cell.precision in c.precisions]
        if (
            self._plan.is_quick and cell.precision == "bf16"
        ):  # a minute is short; float32 is enough to compare the readers
            takes_part = [c for c in takes_part if c.variant not in ("cache", "text", "sparse")]
        records = [Record(contender, cell) for contender in takes_part]
        self._records += records
        ready: list[tuple[Record, Worker]] = []
        starting: list[tuple[Record, Worker]] = []
        # One at a time, first: torch.compile uses older instructions if its probe of the CPU is slow.
        for record in sorted(records, key=lambda record: not record.contender.is_compiled):
            environment = record.contender.environment
            python = self._pythons[environment] if environment else Path(sys.executable)
            if isinstance(python, str):
                record.failure = python
                continue
            worker = self._start(record.contender, cell, python)
            if record.contender.is_compiled:
                ready.append(self._await_ready((record, worker)))
            else:
                starting.append((record, worker))
        ready += map(self._await_ready, starting)
        return [(record, worker) for record, worker in ready if record.failure is None]

    def _start(self, contender: Contender, cell: Cell, python: Path) -> Worker:
        settings = WITHOUT_AMX if cell.precision == "bf16" and contender.name in self._without_amx else {}
        return Worker(contender, cell, python, self._folder, WORK, settings)

    def _await_ready(self, started: tuple[Record, Worker]) -> tuple[Record, Worker]:
        record, worker = started
        try:
            worker.wait_ready()
        except WorkerError as failure:
            contender = record.contender
            if record.cell.precision != "bf16" or contender.name in self._without_amx:
                record.failure = str(failure)
                return record, worker
            self._without_amx.add(contender.name)
            return self._await_ready((record, worker.restart(WITHOUT_AMX)))
        record.version = worker.version
        if worker.settings:
            record.notes.append("bfloat16 dies here without ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 (AMX half hidden)")
        return record, worker

    def _take_turn(self, record: Record, worker: Worker, is_warm_up: bool) -> None:
        if record.failure is not None:
            return
        try:
            windows = [worker.run(self._plan.seconds)]
            while (
                not is_warm_up
                and windows[-1]["other_cores"] > self._plan.foreign_cores
                and len(windows) < self._plan.window_tries
            ):
                windows.append(worker.run(self._plan.seconds))
        except WorkerError as failure:
            record.failure = str(failure)
            return
        if not is_warm_up:
            record.windows.append(min(windows, key=lambda window: window["other_cores"]))

    def _score(self, record: Record, worker: Worker) -> None:
        is_reference = record.contender.stack == "ours" or record.cell.precision == "fp32"
        if not record.contender.has_auc or not is_reference or record.failure is not None:
            return
        try:
            for seed in range(1, self._plan.seeds + 1):
                _say(f"{record.cell}: AUC of {record.contender.name}, seed {seed}")
                record.scores.append(worker.score(seed))
        except WorkerError as failure:
            record.notes.append(f"no AUC: {failure}")


def make_clicks(rows: int) -> Path:
    command = [sys.executable, str(SCRIPTS / "clicks.py"), str(WORK / "data"), str(rows)]
    return Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _read_plan() -> Plan:
    parser = argparse.ArgumentParser(description="Wide&Deep training: ours, the limit and the peers.")
    parser.add_argument("--quick", action="store_true", help="takes a minute; no peers with their own environments")
    parser.add_argument("--only", default="", metavar="NAMES", help="comma-separated: ours,mlp,'torch lazy',paddle,…")
    parser.add_argument("--cells", default="", metavar="CELLS", help="comma-separated: fp32_4096,bf16_512,…")
    parser.add_argument("--rounds", type=int, help="measured rounds (5; quick: 2)")
    parser.add_argument("--seconds", type=float, help="length of a window (3; quick: 0.3)")
    parser.add_argument("--rows", type=int, help="rows of the click log (500000; quick: 40000)")
    parser.add_argument("--seeds", type=int, help="runs of one epoch for the AUC; 0: no AUC (3; quick: 1)")
    parser.add_argument("--foreign-cores", type=float, default=0.1, help="repeat windows where others used more")
    args = parser.parse_args()
    rounds, seconds, rows, seeds = (2, 0.3, 20_000, 1) if args.quick else (5, 3.0, 500_000, 3)
    names = [name.strip() for name in args.only.split(",") if name.strip()]
    cells = [cell for cell in CELLS if not args.cells or str(cell) in args.cells.split(",")]
    try:
        contenders = choose(names, args.quick)
    except ValueError as unknown:
        parser.error(str(unknown))
    if not cells:
        parser.error(f"--cells: known are {', '.join(map(str, CELLS))}")
    return Plan(
        contenders,
        cells,
        rounds if args.rounds is None else args.rounds,
        seconds if args.seconds is None else args.seconds,
        rows if args.rows is None else args.rows,
        seeds if args.seeds is None else args.seeds,
        args.foreign_cores,
        window_tries=1 if args.quick else 3,
        has_warm_up_round=not args.quick,
        is_quick=args.quick,
    )


if __name__ == "__main__":
    made = stamp()
    print(json.dumps(Bench(_read_plan()).run() | made | {"cpu": made["machine"].partition(" x ")[2]}))
