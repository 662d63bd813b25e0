"""Building and opening cube files, against writing the same bytes with dd.

The rows are a published version's part files (Arrow, checked by SHA-256 while they are read); the build ends when the
index files are synced and listed with their digests. dd copies as many bytes from memory to the same disk and syncs
them (conv=fsync). Opening maps a file and reads its header; `in memory` also copies and checks every byte.

python benchmarks/cube_build.py [--quick]
"""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import measure
from elasticctr import _native
from elasticctr.cube.build.builder import BuildOptions, BuildResult
from elasticctr.cube.build.builds import build_version

DIM = 10
PART_ROWS = 1 << 20
WORK = measure.WORK / "cube_build"


def publish(repository: Path, version: int, rows: int) -> None:
    """Publishes a version of random rows in the format of docs/formats/version.md, without training."""
    directory = repository / "bench" / str(version)
    if (directory / "manifest.json").exists():
        return
    rng = np.random.default_rng(version)
    schema = pa.schema([("feasign", pa.uint64()), ("row", pa.binary(4 * DIM))])
    (directory / "sparse/embedding").mkdir(parents=True, exist_ok=True)
    files = []
    for number, start in enumerate(range(0, rows, PART_ROWS)):
        count = min(PART_ROWS, rows - start)
        name = f"sparse/embedding/part-{number:05d}.arrow"
        feasigns = rng.integers(0, 2**64, count, dtype=np.uint64)
        values = rng.normal(0, 0.1, (count, DIM)).astype(np.float32)
        column = pa.Array.from_buffers(pa.binary(4 * DIM), count, [None, pa.py_buffer(values)])
        with pa.OSFile(str(directory / name), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            writer.write_batch(pa.record_batch([pa.array(feasigns), column], schema=schema))
        data = (directory / name).read_bytes()
        files.append({"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    table = {"encoding": "fp32", "dim": DIM, "row_bytes": 4 * DIM, "segments": [{"name": "embedding", "dim": DIM}]}
    manifest = {
        "format": 1,
        "model": "bench",
        "version": version,
        "kind": "base",
        "parent": 0,
        "base": version,
        "created": time.time(),
        "elasticctr": "benchmark",
        "tables": {"embedding": {**table, "rows": rows, "gone": 0, "missing": "zeros"}},
        "files": files,
    }
    data = json.dumps(manifest).encode()
    (directory / "manifest.json").write_bytes(data)
    event = {"event": "publish", "version": version, "kind": "base", "parent": 0, "base": version}
    event |= {"manifest_sha256": hashlib.sha256(data).hexdigest(), "time": time.time()}
    with (repository / "bench" / "donefile").open("a") as donefile:
        donefile.write(json.dumps(event) + "\n")


def run_build(repository: Path, version: int, options: BuildOptions) -> BuildResult:
    shutil.rmtree(WORK / "out", ignore_errors=True)
    return build_version(str(repository), "bench", version, WORK / "out", options)


def run_dd(size: int) -> float:
    target = WORK / "dd"
    command = ["dd", "if=/dev/zero", f"of={target}", "bs=1M", f"count={size >> 20}", "conv=fsync", "status=none"]
    seconds = measure.seconds(lambda: subprocess.run(command, check=True))
    target.unlink()
    return seconds


def open_ms(path: Path, rounds: int) -> float:
    """Median milliseconds of mapping a file and reading its header."""
    times = [measure.seconds(lambda: _native.CubeIndex.open(str(path))) for _ in range(rounds)]
    return statistics.median(times) * 1e3


def find_file(result: BuildResult) -> Path:
    return next(result.directory.rglob("*.cube"))


def main() -> None:
    arguments = measure.parse_arguments("Building and opening cube files against dd")
    rounds = 1 if arguments.quick else 5
    options = BuildOptions(memory_bytes=3 << 30)
    repository = WORK / "repository"
    result: dict[str, float] = {}
    opened: dict[int, float] = {}
    for version, rows in ((1, 1_000_000), (20, 20_000_000)):
        publish(repository, version, rows)
        if not arguments.quick:
            run_build(repository, version, options)  # files in the page cache, memory warm
        builds, copies = [], []
        for _ in range(rounds):
            built = run_build(repository, version, options)
            builds.append(built.seconds)
            copies.append(run_dd(built.bytes))
        build_s, dd_s = statistics.median(builds), statistics.median(copies)
        path = find_file(built)
        opened[rows] = open_ms(path, 200)
        in_memory_ms = measure.seconds(lambda path=path: _native.CubeIndex.open(str(path), "memory", True)) * 1e3
        print(
            f"{rows:>11,} rows: {rows / build_s / 1e6:5.2f} M rows/s, {built.bytes / build_s / 1e6:,.0f} MB/s "
            f"(dd {built.bytes / dd_s / 1e6:,.0f} MB/s), {built.overhead_bytes_per_key:.2f} bytes per key beside the "
            f"row; open {opened[rows]:.3f} ms, in memory {in_memory_ms:,.0f} ms",
            flush=True,
        )
        result = {
            "build_rows_s": rows / build_s,
            "build_mb_s": built.bytes / build_s / 1e6,
            "dd_mb_s": built.bytes / dd_s / 1e6,
            "build_vs_dd": dd_s / build_s,
            "overhead_bytes_per_key": built.overhead_bytes_per_key,
            "open_memory_ms": in_memory_ms,
        }
        shutil.rmtree(WORK / "out")
    measure.print_result({**result, "open_ms_1m": opened[1_000_000], "open_ms_20m": opened[20_000_000]})


if __name__ == "__main__":
    main()
