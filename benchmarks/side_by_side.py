"""This working tree beside another commit: the same quick benchmarks by turns, and the ratio of their figures.

usage: python benchmarks/side_by_side.py --before COMMIT [--rounds 3] [train cube predict …]

The other commit is checked out into a git worktree under .bench/ and built there (minutes, the first time). Its virtual
environment borrows this one's packages. Benchmarks of both run one after the other, in turns, so that whatever else the
machine does meets both alike. A ratio above 1 means that the figure is larger here than before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import measure

BENCHMARKS = ("train", "cube", "predict")


def run(command: list[str | Path], cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def build(commit: str) -> Path:
    """The root of a built worktree of `commit`."""
    name = run(["git", "rev-parse", "--short", f"{commit}^{{commit}}"], measure.ROOT).strip()
    root = measure.WORK / "side-by-side" / name
    stamp = root / ".venv" / "built"
    if stamp.exists():
        return root
    print(f"building {name} …", flush=True)
    if not root.exists():
        run(["git", "worktree", "add", "--detach", "--force", root, name], measure.ROOT)
    run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], root)
    python = root / ".venv" / "bin" / "python"
    theirs = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], root).strip())
    # Packages are borrowed, all but elasticctr itself: an editable one of this tree is a .pth file, which is not read
    # in a directory that is itself named by a .pth file.
    borrowed = [path for path in sys.path if Path(path).name == "site-packages"]
    (theirs / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--ignore-installed"]
    run([*pip, "--editable", root], root)
    stamp.touch()
    return root


def ask(root: Path, name: str) -> dict[str, float]:
    """The figures of one quick run."""
    out = run([root / ".venv" / "bin" / "python", root / "benchmarks" / f"{name}.py", "--quick"], root)
    return {key: value for key, value in json.loads(out.splitlines()[-1]).items() if isinstance(value, int | float)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", required=True, metavar="COMMIT", help="what to compare with")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each; medians are compared")
    parser.add_argument(
        "benchmarks", nargs="*", default=BENCHMARKS, help="scripts under benchmarks/; default: %(default)s"
    )
    arguments = parser.parse_args()
    before = build(arguments.before)
    # Data and peers are the same for both and take long to make.
    if not (before / ".bench").exists():
        measure.WORK.mkdir(exist_ok=True)
        (before / ".bench").symlink_to(measure.WORK)
    ratios: dict[str, float] = {}
    for name in arguments.benchmarks:
        found: dict[str, list[tuple[float, float]]] = {}
        for turn in range(arguments.rounds):
            pair = [ask(root, name) for root in ((before, measure.ROOT) if turn % 2 else (measure.ROOT, before))]
            old, new = pair if turn % 2 else reversed(pair)
            for key in old.keys() & new.keys():
                found.setdefault(key, []).append((old[key], new[key]))
        print(f"\n{name:<40}{'before':>12}{'now':>12}{'ratio':>8}")
        for key, pairs in sorted(found.items()):
            old_value, new_value = (statistics.median(values) for values in zip(*pairs, strict=True))
            ratio = new_value / old_value if old_value else float("nan")
            ratios[f"{name}.{key}"] = ratio
            print(f"{key:<40}{old_value:>12.4g}{new_value:>12.4g}{ratio:>8.3f}", flush=True)
    measure.print_result({key: value for key, value in ratios.items() if value == value})


if __name__ == "__main__":
    main()
