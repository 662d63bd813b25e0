"""The HTTP side: Paddle's services, metrics and their page, and corner cases of the protocol."""

from __future__ import annotations

import base64
import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.process.cube.serving import ServerProcess, feasigns_of, rows_of, write_version

FEASIGNS = feasigns_of(1_000)
DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = DOCS / "how-to" / "cube-server.md"
METRICS = DOCS / "reference" / "metrics.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("http") / "data"
    write_version(data, 4, FEASIGNS)
    write_version(data, 5, FEASIGNS[:10], parent=4)
    write_version(data, 6, FEASIGNS)
    with ServerProcess(data) as process:
        process.activate(4)
        yield process


def row(version: int, feasign: int) -> bytes:
    return rows_of(version, np.array([feasign], np.uint64)).tobytes()


def test_seek_answers_as_the_ancestor_did(server: ServerProcess) -> None:
    keys = [int(FEASIGNS[0]), 12345, int(FEASIGNS[-1])]
    status, answer = server.http("POST", "/DictService/seek", {"keys": keys, "version_required": True})
    assert status == 200 and answer["version"] == "4"
    assert [v["status"] for v in answer["values"]] == [0, 4294967295, 0]
    assert answer["values"][1]["value"] == ""
    assert base64.b64decode(answer["values"][0]["value"]) == row(4, keys[0])
    assert base64.b64decode(answer["values"][2]["value"]) == row(4, keys[2])
    assert "version" not in server.http("POST", "/DictService/seek", {"keys": keys})[1]
    assert server.http("POST", "/DictService/seek?table=ctr/embedding", {"keys": [str(keys[0])]})[0] == 200
    for bad in ("{", '{"keys": 5}', '{"keys": [-1]}', '{"keys": [1.5]}', "[]"):
        assert server.http("POST", "/DictService/seek", bad)[0] == 400, bad
    assert server.http("POST", "/DictService/seek?table=none", {"keys": keys})[0] == 404


def command(server: ServerProcess, cmd: str, **more: str) -> tuple[int, dict[str, object]]:
    return server.http("POST", "/ControlService/cmd", {"cmd": cmd, **more})


def test_commands_of_the_ancestor(server: ServerProcess) -> None:
    assert command(server, "status") == (200, {"cur_version": "4", "bg_version": "", "status": 0})
    assert command(server, "bg_load_patch", version_path="/4_5", version="5")[0] == 200
    assert command(server, "status")[1]["bg_version"] == "5"
    assert command(server, "bg_switch")[0] == 200
    assert command(server, "status") == (200, {"cur_version": "5", "bg_version": "4", "status": 0})
    assert server.wire().lookup(FEASIGNS[:1]).version == 5
    assert command(server, "bg_unload")[0] == 200
    assert command(server, "reload_base", version_path="/6", version="6")[0] == 200
    assert command(server, "status") == (200, {"cur_version": "6", "bg_version": "", "status": 0})
    assert command(server, "bg_load_base", version="4")[0] == 200
    assert command(server, "enable", version="4")[0] == 200
    assert command(server, "status")[1]["cur_version"] == "4"
    assert command(server, "bg_unload")[0] == 200
    assert command(server, "bg_load_base", version="99")[0] == 500
    assert command(server, "nonsense")[0] == 400
    assert command(server, "bg_load_base", version_path="/../../etc", version="")[0] == 400


def test_one_command_at_a_time(server: ServerProcess, tmp_path: Path) -> None:
    """The second one gets 500, as in Paddle's server, and nothing is left half done."""
    statuses: list[int] = []

    def ask() -> None:
        for _ in range(30):
            statuses.append(command(server, "status")[0])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 500} and 200 in statuses
    assert command(server, "status")[0] == 200


def test_keep_alive_chunks_and_pipelining(server: ServerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for _ in range(3):
        body = json.dumps({"keys": [int(FEASIGNS[0])]}).encode()
        chunked = {"Transfer-Encoding": "chunked"}
        connection.request("POST", "/DictService/seek", iter([body[:5], body[5:]]), chunked, encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status == 200 and len(json.loads(answer.read())["values"]) == 1
    connection.request("HEAD", "/healthz")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read() == b""
    connection.request("POST", "/v1/activate", json.dumps({"model": "ctr", "version": 4}))
    answer = connection.getresponse()
    assert answer.status == 200 and json.loads(answer.read())["active"] == 4
    connection.sock.sendall(
        b"GET /healthz HTTP/1.1\r\n\r\n"
        b'POST /v1/activate HTTP/1.1\r\nContent-Length: 29\r\n\r\n{"model": "ctr", "version":4}'
        b"GET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n"
    )
    got = b""
    while part := connection.sock.recv(65536):
        got += part
    assert re.findall(rb"HTTP/1.1 (\d+)", got) == [b"200", b"200", b"200"]
    assert b'{"ready": true}' in got


def test_what_is_refused(server: ServerProcess) -> None:
    assert server.http("GET", "/nothing")[0] == 404
    assert server.http("POST", "/v1/status")[0] == 405
    assert server.http("GET", "/v1/load")[0] == 405
    assert server.http("DELETE", "/v1/status")[0] == 405
    for body in ("", "[]", '{"model": "ctr"}', '{"model": 5, "version": 1}', '{"model": "ctr", "version": 0}'):
        assert server.http("POST", "/v1/load", body)[0] == 400, body
    status, answer = server.http("POST", "/v1/retire", {"model": "ctr", "version": 77})
    assert (status, answer["error"]["code"]) == (404, "NotFound")
    status, answer = server.http("POST", "/v1/retire", {"model": "ctr", "version": 4})
    assert (status, answer["error"]["code"]) == (412, "FailedPrecondition")


def test_metrics_count_what_happened(server: ServerProcess) -> None:
    def read() -> dict[str, float]:
        lines = server.http("GET", "/metrics")[1].splitlines()
        return {name: float(n) for name, _, n in (line.rpartition(" ") for line in lines if line[0] != "#")}

    before = read()
    wire = server.wire()
    wire.lookup(np.concatenate([FEASIGNS[:90], np.arange(10, dtype=np.uint64)]))
    wire.lookup(FEASIGNS[:5], version=123)
    wire.lookup(FEASIGNS[:7], table="ctr/none")
    after = read()

    def moved(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert moved('cube_requests_total{table="ctr/embedding",protocol="wire"}') == 2
    assert moved('cube_keys_total{table="ctr/embedding",protocol="wire"}') == 105
    assert moved('cube_hits_total{table="ctr/embedding"}') == 90
    assert moved('cube_misses_total{table="ctr/embedding",kind="missing"}') == 10
    assert moved('cube_misses_total{table="ctr/embedding",kind="no_version"}') == 5
    assert moved('cube_misses_total{table="",kind="no_table"}') == 7
    assert moved("cube_request_seconds_count") == 3
    assert moved('cube_request_keys_bucket{le="100"}') == 1
    assert after['cube_active_version{model="ctr"}'] == 4
    assert after["cube_ready"] == 1
    assert after['cube_rows{table="ctr/embedding"}'] == len(FEASIGNS)


def test_every_metric_and_page_is_documented(server: ServerProcess) -> None:
    page = METRICS.read_text().partition("## Cube server")[2].partition("\n## ")[0]
    text = server.http("GET", "/metrics")[1]
    names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    assert len(names) > 20
    assert {name for name in names if f"`{name}`" not in page} == set()
    documented = set(re.findall(r"`((?:cube|process)_[a-z_]+)`", page))
    assert documented - names == set(), "named in the page but not served"
    for path in ("/healthz", "/readyz", "/v1/status", "/v1/load", "/v1/activate", "/v1/retire", "/metrics",
                 "/DictService/seek", "/ControlService/cmd"):  # fmt: skip
        assert path in PAGE.read_text()


def test_delta_lag_and_chain(server: ServerProcess) -> None:
    server.load(5)
    # A version is there a moment before the time it came is noted.
    for _ in range(3000):
        text = server.http("GET", "/metrics")[1]
        lag = re.search(r'cube_delta_lag_seconds\{model="ctr"\} (\S+)', text)
        if lag is not None and float(lag[1]) > 0:
            break
        time.sleep(0.02)
    assert lag is not None and 0 < float(lag[1]) < 300
    server.activate(5)
    text = server.http("GET", "/metrics")[1]
    assert 'cube_delta_lag_seconds{model="ctr"} 0' in text and 'cube_chain_length{model="ctr"} 1' in text
    server.activate(4)
    server.http("POST", "/v1/retire", {"model": "ctr", "version": 5})
