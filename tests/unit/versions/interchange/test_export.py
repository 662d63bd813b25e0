"""A version exported and read back: values, tombstones, donefiles, the newest of a chain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.versions.interchange import open_rows, parse_donefile
from elasticctr.versions.lease import PublisherLease
from elasticctr.versions.manifest import Manifest, Segment
from elasticctr.versions.repository import Repository
from elasticctr.versions.writer import VersionWriter

BASE = {feasign: [feasign + 0.25, -feasign] for feasign in range(1, 200)}
CHANGED = {7: [70.5, 0.125], 2**63 + 9: [1.0, 2.0], 8: [80.0, 8.0]}
GONE = [5, 6, 2**64 - 1]


@dataclass(frozen=True)
class _Rows:
    rows: dict[int, list[float]]

    @property
    def estimate(self) -> int:
        return len(self.rows)

    def read(self, buckets: tuple[int, int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        from elasticctr import _native

        mine = [f for f in self.rows if buckets[0] <= _native.shard_of(f, 4096) < buckets[1]]
        yield np.array(mine, np.uint64), np.array([self.rows[f] for f in mine], np.float32).reshape(-1, 2)


def publish(repository: Repository, version: int, rows: dict[int, list[float]], parent: Manifest | None) -> Manifest:
    with PublisherLease(repository.store, "ctr") as lease:
        writer = VersionWriter(repository, "ctr", version, lease)
        gone = np.array(GONE if parent else [], np.uint64)
        writer.add_table("main", (Segment(name="embedding", dim=2),), "fp32", _Rows(rows), gone)
        manifest = writer.commit("delta" if parent else "base", parent, {})
        writer.announce(manifest)
    return manifest


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repository = Repository(str(tmp_path / "repo"))
    publish(repository, 2, CHANGED, publish(repository, 1, BASE, None))
    return tmp_path / "repo"


def run(*arguments: str) -> dict[str, object]:
    done = CliRunner().invoke(app, ["cube", "export", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def read(directory: Path, encoding: str | None = None) -> tuple[dict[int, list[float]], list[int]]:
    source = open_rows(str(directory), encoding)
    rows: dict[int, list[float]] = {}
    for feasigns, values in source.blocks():
        assert not rows.keys() & set(feasigns.tolist())
        rows |= dict(zip(feasigns.tolist(), values.view(np.float32).tolist(), strict=True))
    return rows, sorted(f for feasigns in source.gone() for f in feasigns.tolist())


@pytest.mark.parametrize("form", ["sequence", "hadoop", "text", "parquet"])
def test_base_and_delta_come_back_as_they_were(repo: Path, tmp_path: Path, form: str) -> None:
    to = tmp_path / "out"
    run(f"{repo}/ctr/1", "--out", str(to), "--format", form, "--donefile")
    run(f"{repo}/ctr/2", "--out", str(to), "--format", form, "--donefile")
    assert read(to / "main/1") == (BASE, [])
    assert read(to / "main/2") == (CHANGED, sorted(GONE))
    (base,) = parse_donefile((to / "main/donefile/base.txt").read_bytes()).lines
    (patch,) = parse_donefile((to / "main/donefile/patch.txt").read_bytes()).lines
    assert (base.id, base.key, base.input) == ("1", "1", str(to / "main/1"))
    assert (patch.id, patch.key, patch.input) == ("2", "1", str(to / "main/2"))


def test_whole_is_the_newest_row_of_each_feasign(repo: Path, tmp_path: Path) -> None:
    answer = run(f"{repo}/ctr", "--out", str(tmp_path / "out"), "--whole", "--donefile")
    expected = {f: row for f, row in {**BASE, **CHANGED}.items() if f not in GONE}
    assert answer["version"] == 2
    assert read(tmp_path / "out/main/2") == (expected, [])
    assert (tmp_path / "out/main/donefile/base.txt").exists()


def test_a_donefile_names_an_absolute_directory(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(f"{repo}/ctr/1", "--out", "out", "--donefile")
    (line,) = parse_donefile((tmp_path / "out/main/donefile/base.txt").read_bytes()).lines
    assert line.input == str(tmp_path / "out/main/1")


def test_quantised_rows_are_within_a_step(repo: Path, tmp_path: Path) -> None:
    run(f"{repo}/ctr/1", "--out", str(tmp_path / "out"), "--quantise")
    rows, _ = read(tmp_path / "out/main/1", "min_max")
    worst = max(abs(value - BASE[f][i]) / np.ptp(BASE[f]) for f, row in rows.items() for i, value in enumerate(row))
    assert worst < 0.5 / 255


def test_several_files(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elasticctr.versions.interchange.export.ROWS_PER_FILE", 1)
    run(f"{repo}/ctr/2", "--out", str(tmp_path / "out"), "--whole")
    assert len(list((tmp_path / "out/main/2").glob("part-*.seq"))) > 1
    assert len(read(tmp_path / "out/main/2")[0]) == len({**BASE, **CHANGED}) - 2


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["{repo}/ctr/9", "--out", "x"], 12, "version 9 was never published"),
        (["{repo}/ctr/1", "--out", "x", "--format", "avro"], 10, "--format avro: unknown"),
        (["{repo}/ctr/1", "--out", "x", "--table", "other"], 12, "no table 'other'; it has main"),
        (["ctr", "--out", "x"], 10, "not REPO/MODEL/VERSION"),
        (["{repo}/ctr/1", "--out", "x", "--format", "text", "--quantise"], 10, "8-bit rows are for SequenceFiles"),
    ],
)
def test_errors(repo: Path, tmp_path: Path, arguments: list[str], status: int, message: str) -> None:
    done = CliRunner().invoke(app, ["cube", "export", *(argument.format(repo=repo) for argument in arguments)])
    assert (done.exit_code, message in done.output) == (status, True), done.output
