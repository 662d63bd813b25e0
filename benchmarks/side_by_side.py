"""Compares the speed of this working tree with another commit's, in turns of half a second.

usage: python benchmarks/side_by_side.py --before COMMIT [--turns 40] [train cube predict]

The other commit is checked out into a git worktree under .bench/ and built there (which takes minutes the first time).
Its virtual environment borrows this one's packages. Both run at the same time and take turns under load, so that other
load on the machine affects both equally. A ratio above 1 means that this tree is faster. The error is that of the
median over all pairs of turns (by bootstrap): differences below twice the error are insignificant.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import measure
from contenders.kv_servers import CubeServer, make_rows
from contenders.kv_servers import LoadGenerator as KeyLoad
from contenders.predict_data import prepare as prepare_predict
from contenders.predict_data import read_bodies
from contenders.predict_servers import LoadGenerator as RequestLoad
from contenders.predict_servers import start_ours
from contenders.process import Worker
from contenders.roster import Cell, Contender
from train import make_clicks

KEYS, ROW_BYTES = 1_000_000, 40
TURN_S = 0.5
TRAIN_ROWS = 200_000
# Protocol, connections, pipeline, keys of a request.
LOOKUPS = (("wire", 8, 16, 26), ("wire", 8, 8, 100), ("redis-decimal", 8, 16, 1), ("redis-decimal", 8, 8, 100))
Turn = Callable[[], float]  # a speed


def run(command: list[str | Path], cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def build(commit: str) -> Path:
    """The Python of a built worktree of `commit`."""
    name = run(["git", "rev-parse", "--short", f"{commit}^{{commit}}"], measure.ROOT).strip()
    root = measure.WORK / "side-by-side" / name
    python, stamp = root / ".venv" / "bin" / "python", root / ".venv" / "built"
    if stamp.exists():
        return python
    print(f"building {name} …", flush=True)
    if not root.exists():
        run(["git", "worktree", "add", "--detach", "--force", root, name], measure.ROOT)
    run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], root)
    theirs = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], root).strip())
    # All packages are borrowed except elasticctr itself: this tree's editable install is a .pth file, which is not
    # read in a directory that is itself named by a .pth file.
    borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
    (theirs / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--ignore-installed"]
    run([*pip, "--editable", root], root)
    stamp.touch()
    return python


def cube(pythons: list[Path], stack: ExitStack) -> Iterator[tuple[str, list[Turn]]]:
    """Keys per second of the server's CPU time."""
    data, load = make_rows(KEYS, ROW_BYTES), KeyLoad()
    servers = [stack.enter_context(CubeServer(data, python)) for python in pythons]
    for protocol, connections, pipeline, keys in LOOKUPS:

        def ask(server: CubeServer, shape: tuple[str, int, int, int]) -> float:
            protocol, connections, pipeline, keys = shape
            got = load.run(server, protocol, KEYS, ROW_BYTES, connections, pipeline, keys, "uniform", 0, TURN_S)
            if got.wrong:
                raise SystemExit(f"{got.wrong} answers were wrong")
            return 1e9 / got.cpu_ns_per_key

        shape = (protocol, connections, pipeline, keys)
        yield f"{protocol}_{keys}", [lambda one=one, shape=shape: ask(one, shape) for one in servers]


def predict(pythons: list[Path], stack: ExitStack) -> Iterator[tuple[str, list[Turn]]]:
    """Requests per second with the server on one core."""
    prepare_predict()
    load = RequestLoad()
    servers = [stack.enter_context(start_ours(python, f"elasticctr {n}")) for n, python in enumerate(pythons)]
    for server in servers:
        server.wait(read_bodies(1, 1)[0])
    for size in (1, 10, 100):
        yield (
            str(size),
            [lambda one=one, size=size: load.run(one, size, 16, 0, TURN_S).requests_s for one in servers],
        )


def train(pythons: list[Path], stack: ExitStack) -> Iterator[tuple[str, list[Turn]]]:
    """Samples per second, batches in memory."""
    folder = make_clicks(TRAIN_ROWS)
    for batch_size in (4096, 512):
        workers = []
        for number, python in enumerate(pythons):
            contender = Contender("ours", "parsed", "ours.py")
            scratch = measure.WORK / "side-by-side" / f"logs-{number}"
            worker = Worker(contender, Cell("fp32", batch_size), python, folder, scratch, {})
            stack.callback(worker.join)
            stack.callback(worker.quit)
            worker.wait_ready()
            workers.append(worker)
        yield f"fp32_{batch_size}", [lambda one=one: float(one.run(TURN_S)["samples_per_s"]) for one in workers]


CONTESTS = {"train": train, "cube": cube, "predict": predict}


def compare(turns: list[Turn], count: int) -> tuple[float, float, float]:
    """The ratio of median speeds, its error, and the speed before."""
    pairs = []
    for number in range(count):
        order = (0, 1) if number % 2 else (1, 0)
        speeds = {which: turns[which]() for which in order}
        pairs.append((speeds[0], speeds[1]))
    before, now = np.array(pairs).T
    random = np.random.default_rng(0)
    samples = [np.median((now / before)[random.integers(0, count, count)]) for _ in range(2000)]
    return float(np.median(now / before)), float(np.std(samples)), float(np.median(before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True, metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--turns", type=int, default=40, help="turns of each; medians are compared")
    parser.add_argument("contests", nargs="*", default=list(CONTESTS), help="default: %(default)s")
    arguments = parser.parse_args()
    pythons = [build(arguments.before), Path(sys.executable)]
    figures: dict[str, float] = {}
    print(f"{'':<28}{'before':>14}{'ratio':>8}{'error':>8}")
    for contest in arguments.contests:
        with ExitStack() as stack:
            for name, turns in CONTESTS[contest](pythons, stack):
                ratio, error, before = compare(turns, arguments.turns)
                print(f"{contest + ' ' + name:<28}{before:>14,.0f}{ratio:>8.3f}{error:>8.3f}", flush=True)
                figures |= {f"{contest}_{name}": ratio, f"{contest}_{name}_error": error}
    measure.print_result(figures)


if __name__ == "__main__":
    main()
