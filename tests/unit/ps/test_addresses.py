"""Where a coordinator is, read from a URL or a run directory."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from elasticctr.errors import Corruption, Unavailable
from elasticctr.ps.addresses import (
    advertised_host,
    find_coordinator,
    find_nearest,
    make_local_socket,
    write_coordinator,
)


def test_a_url_is_taken_as_it_is() -> None:
    assert find_coordinator("http://10.0.0.1:80/") == "http://10.0.0.1:80"


def test_a_run_directory_says_where_and_says_it_anew(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="has not started yet"):
        find_coordinator(tmp_path)
    write_coordinator(tmp_path, "http://a:1", 1)
    assert find_coordinator(tmp_path) == "http://a:1"
    write_coordinator(tmp_path, "http://b:2", 2)
    assert find_coordinator(str(tmp_path)) == "http://b:2"
    assert [path.name for path in tmp_path.iterdir()] == ["coordinator.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"url": 5}', '{"url": "ftp://x"}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "coordinator.json").write_text(text)
    with pytest.raises(Corruption, match=r"coordinator\.json"):
        find_coordinator(tmp_path)


def test_what_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ELASTICCTR_ADVERTISE", "POD_IP", "PADDLE_CURRENT_IP"):
        monkeypatch.delenv(name, raising=False)
    assert advertised_host("127.0.0.1") == "127.0.0.1"
    assert advertised_host("0.0.0.0") not in ("0.0.0.0", "")
    monkeypatch.setenv("POD_IP", "10.1.2.3")
    assert advertised_host("0.0.0.0") == "10.1.2.3"
    assert advertised_host("10.9.9.9") == "10.9.9.9"


def test_a_pserver_of_this_machine_is_reached_by_its_unix_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as server:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        path = make_local_socket(4711, 5)
        assert path is not None
        assert find_nearest("127.0.0.1:4711", 5) == "127.0.0.1:4711"  # nobody listens there
        server.bind(str(path))
        assert find_nearest("127.0.0.1:4711", 5) == f"unix:{path}"
        assert find_nearest(f"{advertised_host('0.0.0.0')}:4711", 5) == f"unix:{path}"
        for address, job in (("127.0.0.1:4711", 6), ("127.0.0.1:4712", 5), ("192.0.2.7:4711", 5)):
            assert find_nearest(address, job) == address
        monkeypatch.setattr(tempfile, "tempdir", f"{folder}/{'long' * 30}")
        assert make_local_socket(4711, 5) is None
