"""Text rows: every accepted way of writing a line, and the errors for others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elasticctr.errors import ConfigError, DataError, ElasticCTRError
from elasticctr.storage import open_store
from elasticctr.versions.interchange import RowInfo, open_rows, open_writer


def read(path: Path) -> tuple[list[int], np.ndarray]:
    blocks = list(open_rows(str(path)).blocks())
    return np.concatenate([b[0] for b in blocks]).tolist(), np.concatenate([b[1] for b in blocks]).view(np.float32)


@pytest.mark.parametrize(
    "line",
    ["18446744073709551615:0.5,-2,1e-3", "18446744073709551615:0.5 -2 1e-3", "18446744073709551615: 0.5,  -2\t1e-3",
     "18446744073709551615 10 3 0.5 -2 1e-3"],
)  # fmt: skip
def test_every_spelling_of_a_row(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.txt"
    for text in (f"{line}\n\n{line}", f"{line}\r\n{line}\r\n"):
        path.write_text(text)
        feasigns, values = read(path)
        assert feasigns == [2**64 - 1] * 2
        assert values.tolist() == np.array([[0.5, -2, 1e-3]] * 2, np.float32).tolist()


def test_round_trip_keeps_every_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    feasigns = rng.integers(0, 2**64, 5000, dtype=np.uint64)
    values = (rng.normal(size=(5000, 7)) * 10.0 ** rng.integers(-20, 20, (5000, 7))).astype(np.float32)
    with open_writer(open_store(str(tmp_path)), "rows.txt", "text", RowInfo("fp32", 7, 28)) as writer:
        writer.write(feasigns[:1], values[:1].view(np.uint8))
        writer.write(feasigns[1:], values[1:].view(np.uint8))
    monkeypatch.setattr("elasticctr.versions.interchange.text._BUFFER_BYTES", 10_007)
    read_feasigns, read_values = read(tmp_path / "rows.txt")
    assert read_feasigns == feasigns.tolist()
    assert np.array_equal(read_values, values)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("7:1,x", ":3: is not `feasign:v1,v2,…`: '7:1,x'"),
        ("7:1", ":3: 1 numbers; the first line has 2"),
        ("18446744073709551616:1,2", ":3: feasign 18446744073709551616 is not"),
        ("-1:1,2", ":3: feasign -1 is not"),
        ("zürich", ":3: is not"),
        ("7:1,1e39", ":3: '1e39' is not a finite 32-bit float"),
        ("7:nan,1", ":3: 'nan' is not a finite 32-bit float"),
        ("7:1,-inf", ":3: '-inf' is not a finite 32-bit float"),
    ],
)
@pytest.mark.promise(
    "input rows of a build with nan, inf or numbers outside 32-bit floats", "DataError with path and line"
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "rows.txt").write_text(f"1:1,2\n\n{line}\n")
    with pytest.raises(DataError, match=message):
        read(tmp_path / "rows.txt")


def test_files_that_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    for data in (b"", b"\n\n", b"12\n", b"hello\n", b"\0\1\2", b"1:\n"):
        path.write_bytes(data)
        with pytest.raises(DataError):
            read(path)
    path.write_bytes(b"1:2\n")
    with pytest.raises(ConfigError, match="text rows are floats"):
        open_rows(str(path), "int8")


def test_mutated_text_only_raises_typed_errors(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    original = "".join(f"{i * 7919}:{i}.5,{-i},1e-{i % 30}\n" for i in range(50)).encode()
    for _ in range(300):
        data = bytearray(original)
        for at in rng.integers(0, len(data), 3):
            data[at] = int(rng.integers(0, 256))
        (tmp_path / "rows.txt").write_bytes(data)
        try:
            feasigns, values = read(tmp_path / "rows.txt")
        except ElasticCTRError:
            continue
        assert len(feasigns) == len(values)
