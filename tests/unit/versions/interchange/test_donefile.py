"""base.txt and patch.txt: reading a file in any state, and concurrent appends."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from elasticctr.errors import NotFound
from elasticctr.storage import open_store, resolve
from elasticctr.versions.interchange import DoneLine, append_donefile, parse_donefile, read_donefile

FIRST = DoneLine("1562000400", "1562000400", "/path/base")
SECOND = DoneLine("1562000401", "1562000400", "/path/patch")


def test_lines_are_json_as_documented(tmp_path: Path) -> None:
    path = tmp_path / "donefile" / "base.txt"
    append_donefile(open_store(str(path.parent)), path.name, FIRST)
    assert path.read_bytes() == b'{"id": "1562000400", "key": "1562000400", "input": "/path/base"}\n'
    append_donefile(open_store(str(path.parent)), path.name, SECOND)
    (file,) = resolve(str(path))
    assert read_donefile(file).lines == (FIRST, SECOND)


def test_garbage_and_blank_lines_are_reported_and_skipped() -> None:
    data = (
        b"\n" + FIRST.encode() + b'garbage\n\xff\xfe\n[1]\n{"id": "1"}\n{"id": true, "key": "1", "input": "x"}\n   \n'
    )
    done = parse_donefile(data + SECOND.encode())
    assert done.lines == (FIRST, SECOND)
    assert done.problems == (
        "line 3: is not JSON",
        "line 4: is not JSON",
        "line 5: is not a JSON object",
        "line 6: has no key",
        "line 7: has no id",
    )
    assert not done.is_unfinished


def test_numbers_are_taken_for_id_and_key() -> None:
    assert parse_donefile(b'{"id": 1562000400, "key": 1562000400, "input": "/path/base", "more": 1}\n').lines == (
        FIRST,
    )


def test_a_line_without_its_newline_is_not_there_yet() -> None:
    for size in range(1, len(SECOND.encode())):
        done = parse_donefile(FIRST.encode() + SECOND.encode()[:size])
        assert (done.lines, done.problems, done.is_unfinished) == ((FIRST,), (), True)


def test_append_closes_a_line_left_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "base.txt"
    path.write_bytes(b'{"id": "15')
    append_donefile(open_store(str(path.parent)), path.name, FIRST)
    done = parse_donefile(path.read_bytes())
    assert done.lines == (FIRST,)
    assert done.problems == ("line 1: is not JSON",)


def test_appends_at_once_all_arrive_whole(tmp_path: Path) -> None:
    path = tmp_path / "patch.txt"

    def append(writer: int) -> None:
        for i in range(20):
            append_donefile(open_store(str(path.parent)), path.name, DoneLine(f"{writer}-{i}", "1", "x" * 500))

    threads = [threading.Thread(target=append, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = parse_donefile(path.read_bytes())
    assert sorted(line.id for line in done.lines) == sorted(f"{w}-{i}" for w in range(8) for i in range(20))
    # A reader may see another's write half done, and closes it with an empty line.
    written = [line for line in path.read_text().splitlines() if line]
    assert all(set(json.loads(line)) == {"id", "key", "input"} for line in written)


def test_no_donefile() -> None:
    with pytest.raises(NotFound):
        resolve("/nowhere/base.txt")
