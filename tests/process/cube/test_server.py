"""The server as a process: what it says, what it serves, how it starts and ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.process.cube.serving import (
    DESCRIBE,
    HELLO,
    LOOKUP,
    PING,
    ServerProcess,
    Wire,
    feasigns_of,
    rows_of,
    write_version,
)

FEASIGNS = feasigns_of(20_000)
ABSENT = feasigns_of(1_000, seed=9)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    write_version(folder, 1, FEASIGNS, tables=("embedding", "wide"))
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """For tests that do not change it."""
    data = tmp_path_factory.mktemp("shared") / "data"
    write_version(data, 1, FEASIGNS, tables=("embedding", "wide"))
    with ServerProcess(data, "--activate", "newest", "--threads", "2") as process:
        yield process


@pytest.fixture
def own_server(data: Path) -> Iterator[ServerProcess]:
    with ServerProcess(data, "--activate", "newest", "--threads", "2") as process:
        yield process


def test_rows_are_what_was_built(server: ServerProcess) -> None:
    assert server.listening["ready"] is True
    wire = server.wire()
    asked = np.concatenate([FEASIGNS[:5000], ABSENT])
    answer = wire.lookup(asked)
    rows, found = answer.rows()
    assert (answer.status, answer.version, answer.active) == (0, 1, 1)
    assert found[:5000].all() and not found[5000:].any()
    np.testing.assert_array_equal(rows[:5000], rows_of(1, FEASIGNS[:5000]))
    assert not rows[5000:].any()


@pytest.mark.parametrize("count", [0, 1, 7, 8, 63, 64, 65, 1000])
def test_any_number_of_feasigns(server: ServerProcess, count: int) -> None:
    rows, found = server.wire().lookup(FEASIGNS[:count]).rows()
    assert len(rows) == count and found.all()
    np.testing.assert_array_equal(rows, rows_of(1, FEASIGNS[:count]))


def test_a_pipeline_is_answered_in_order(server: ServerProcess) -> None:
    wire = server.wire()
    sent = {wire.send(LOOKUP, FEASIGNS[i : i + 100].tobytes(), table="ctr/wide"): i for i in range(0, 10_000, 100)}
    for _ in range(len(sent)):
        answer = wire.receive()
        rows, found = answer.rows()
        first = sent.pop(answer.id)
        assert found.all()
        np.testing.assert_array_equal(rows, rows_of(1, FEASIGNS[first : first + 100]))
    assert not sent


def test_an_odd_ping_does_not_shift_the_lookup_after_it(server: ServerProcess) -> None:
    wire = server.wire()
    wire.send(PING, b"odd")
    wire.send(LOOKUP, FEASIGNS[:50].tobytes(), table="ctr/embedding")
    assert wire.receive().body == b"odd"
    np.testing.assert_array_equal(wire.receive().rows()[0], rows_of(1, FEASIGNS[:50]))


def test_typed_misses(server: ServerProcess) -> None:
    wire = server.wire()
    assert [(a.status, a.detail) for a in [wire.lookup(FEASIGNS[:3], "ctr/none")]] == [(12, 1)]
    assert [(a.status, a.detail) for a in [wire.lookup(FEASIGNS[:3], version=9)]] == [(12, 2)]
    malformed = wire.ask(LOOKUP, b"12345", table="ctr/embedding")
    assert (malformed.status, malformed.detail) == (11, 7)
    assert wire.lookup(FEASIGNS[:3]).status == 0, "the connection goes on"


def test_hello_and_describe(server: ServerProcess) -> None:
    wire = server.wire()
    hello = json.loads(wire.ask(HELLO, b"anything").body)
    assert hello == {"server": "cube", "protocol": 1, "max_body": 2 << 20, "max_keys": 16_384}
    described = json.loads(wire.ask(DESCRIBE).body)
    _, status = server.http("GET", "/v1/status")
    assert described["models"] == status["models"]
    table = status["models"][0]["versions"][0]["tables"][0]
    assert table == {
        "name": "embedding", "rows": len(FEASIGNS), "row_bytes": 40, "encoding": "fp32", "dim": 10,
        "shard": 0, "shards": 1, "sharding": "buckets",
    }  # fmt: skip
    assert status["ready"] is True and status["memory_bytes"] > 40 * len(FEASIGNS)


def test_load_activate_roll_back_retire(own_server: ServerProcess, data: Path) -> None:
    server = own_server
    write_version(data, 2, FEASIGNS[:100], tables=("embedding",), parent=1, gone=FEASIGNS[100:200])
    assert server.load(2)["state"] == "ready"
    wire = server.wire()
    assert wire.lookup(FEASIGNS[:1]).version == 1, "loaded is not active"
    rows, found = wire.lookup(FEASIGNS[:300], version=2).rows()
    np.testing.assert_array_equal(rows[:100], rows_of(2, FEASIGNS[:100]))
    assert not found[100:200].any() and found[200:].all()
    np.testing.assert_array_equal(rows[200:], rows_of(1, FEASIGNS[200:300]))

    assert server.http("POST", "/v1/retire", {"model": "ctr", "version": 1})[0] == 412
    assert server.http("POST", "/v1/activate", {"model": "ctr", "version": 2}) == (200, {"active": 2, "previous": 1})
    assert json.loads((data / "ctr" / "LIVE").read_text()) == {"version": 2, "previous": 1}
    assert wire.lookup(FEASIGNS[:1]).version == 2
    assert server.http("POST", "/v1/activate", {"model": "ctr", "version": 1}) == (200, {"active": 1, "previous": 2})
    assert wire.lookup(FEASIGNS[:1]).version == 1
    assert server.http("POST", "/v1/retire", {"model": "ctr", "version": 2})[0] == 200
    assert wire.lookup(FEASIGNS[:1], version=2).detail == 2
    assert server.http("POST", "/v1/activate", {"model": "ctr", "version": 2})[0] == 404
    assert server.http("POST", "/v1/load", {"model": "ctr", "version": 7})[0] == 404


def test_a_restart_serves_what_was_live(data: Path) -> None:
    write_version(data, 2, FEASIGNS[:10], parent=1)
    write_version(data, 3, FEASIGNS[10:20], parent=2)
    with ServerProcess(data) as server:
        assert server.listening["ready"] is False
        assert server.http("GET", "/readyz")[0] == 503
        answer = server.wire().lookup(FEASIGNS[:1])
        assert (answer.status, answer.detail) == (17, 5)
        server.activate(2)
        server.activate(3)
        server.process.kill()
    with ServerProcess(data) as server:
        assert server.listening["ready"] is True
        _, status = server.http("GET", "/v1/status")
        model = status["models"][0]
        assert (model["active"], model["previous"], [v["version"] for v in model["versions"]]) == (3, 2, [1, 2, 3])
        rows, _ = server.wire().lookup(FEASIGNS[:30]).rows()
        np.testing.assert_array_equal(rows[:10], rows_of(2, FEASIGNS[:10]))
        np.testing.assert_array_equal(rows[10:20], rows_of(3, FEASIGNS[10:20]))
        np.testing.assert_array_equal(rows[20:], rows_of(1, FEASIGNS[20:30]))


def test_a_damaged_live_version_is_not_replaced_by_another(data: Path) -> None:
    folder = write_version(data, 2, FEASIGNS)
    (data / "ctr" / "LIVE").write_text('{"version": 2, "previous": 1}')
    whole = (folder / "embedding.cube").read_bytes()
    (folder / "embedding.cube").write_bytes(whole[:9000] + bytes([whole[9000] ^ 1]) + whole[9001:])
    with ServerProcess(data) as server:
        assert server.listening["ready"] is False
        assert server.http("GET", "/readyz")[0] == 503
        _, status = server.http("GET", "/v1/status")
        model = status["models"][0]
        assert model["active"] == 0 and "embedding.cube" in model["error"]
        failed = next(v for v in model["versions"] if v["version"] == 2)
        assert failed["state"] == "failed" and failed["error"]["code"] == "Corruption"
        assert server.wire().lookup(FEASIGNS[:1]).status == 17
        (folder / "embedding.cube").write_bytes(whole)
        server.activate(2)
        assert server.http("GET", "/readyz")[0] == 200
        assert server.wire().lookup(FEASIGNS[:1]).version == 2
        assert "is not served" in server.stop()[1]


def test_a_shard_json_that_does_not_fit_is_refused(own_server: ServerProcess, data: Path) -> None:
    folder = write_version(data, 2, FEASIGNS[:10])
    described = json.loads((folder / "shard.json").read_text())
    change: dict[str, Any]
    for change in ({"version": 8}, {"model": "other"}, {"parent": 5}, {"files": []}, {"format": 2}, {"kind": 3}):
        (folder / "shard.json").write_text(json.dumps(described | change))
        status, answer = own_server.http("POST", "/v1/load", {"model": "ctr", "version": 2})
        assert (status, answer["error"]["code"]) == (500, "Corruption"), change
    (folder / "shard.json").write_text(json.dumps(described))
    with (folder / "embedding.cube").open("ab") as file:
        file.write(b"more")
    assert own_server.http("POST", "/v1/load", {"model": "ctr", "version": 2})[0] == 500


def test_paths_stay_inside_the_data_directory(own_server: ServerProcess, data: Path, tmp_path: Path) -> None:
    server = own_server
    for model in ("../ctr", "ctr/../ctr", "/etc", ".", "", "a" * 65, "-x"):
        status, answer = server.http("POST", "/v1/load", {"model": model, "version": 1})
        assert (status, answer["error"]["code"]) == (400, "ConfigError"), model
    write_version(tmp_path / "elsewhere", 5, FEASIGNS[:10])
    (data / "ctr" / "5").symlink_to(tmp_path / "elsewhere" / "ctr" / "5")
    status, answer = server.http("POST", "/v1/load", {"model": "ctr", "version": 5})
    assert status == 400 and "leads out" in answer["error"]["message"]


def test_a_shard_answers_for_its_own_feasigns_only(tmp_path: Path) -> None:
    from elasticctr import _native

    data = tmp_path / "data"
    write_version(data, 1, FEASIGNS, shard=1, shards=2)
    owners = np.array([_native.shard_of(int(f), 2) for f in FEASIGNS])
    with ServerProcess(data, "--activate", "newest") as server:
        wire = server.wire()
        rows, found = wire.lookup(FEASIGNS[owners == 1]).rows()
        assert found.all()
        np.testing.assert_array_equal(rows, rows_of(1, FEASIGNS[owners == 1]))
        answer = wire.lookup(FEASIGNS[:100])
        assert (answer.status, answer.detail) == (15, 3)


def test_unix_socket_and_further_ports(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "cube.sock"
    with ServerProcess(
        data, "--activate", "newest", "--unix", str(path), "--redis-port", "0", "--http-port", "0"
    ) as server:
        assert Wire(0, unix=path).lookup(FEASIGNS[:10]).status == 0
        for port in server.listening["extra_ports"]:
            assert Wire(port).ask(PING, b"x").body == b"x"
        assert server.stop()[0] == 0
    assert not path.exists()


def test_a_built_directory_needs_its_shard_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "ctr" / "1").mkdir(parents=True)
    for shard in (0, 1):
        made = write_version(tmp_path / str(shard), 1, FEASIGNS, shard=shard, shards=2)
        made.rename(data / "ctr" / "1" / f"shard-{shard:04}-of-0002")
    command = [sys.executable, "-m", "elasticctr", "cube", "server", "--port", "0", "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 10 and "--shard 0/2" in done.stderr
    with ServerProcess(data, "--shard", "1/2", "--activate", "newest") as server:
        assert server.listening["ready"] is True and server.listening["reason"] is None
        server.activate(1)
        assert json.loads((data / "ctr" / "LIVE-0001-of-0002").read_text())["version"] == 1
    with ServerProcess(data, "--shard", "0/2") as server:
        assert "--activate newest" in server.listening["reason"]


def test_sigterm_finishes_what_arrived(own_server: ServerProcess) -> None:
    wire = own_server.wire()
    wire.ask(PING)
    # Most of it is still in the client's socket, held back until the server acknowledges what went before.
    for _ in range(50):
        wire.send(LOOKUP, FEASIGNS[:100].tobytes(), table="ctr/embedding")
    own_server.process.send_signal(signal.SIGTERM)
    for _ in range(50):
        np.testing.assert_array_equal(wire.receive().rows()[0], rows_of(1, FEASIGNS[:100]))
    status, _ = own_server.stop()
    assert status == 0


def test_sigterm_finishes_what_waits_in_the_socket(own_server: ServerProcess) -> None:
    wire = own_server.wire()
    wire.ask(PING)
    own_server.process.send_signal(signal.SIGSTOP)
    for _ in range(50):
        wire.send(LOOKUP, FEASIGNS[:100].tobytes(), table="ctr/embedding")
    own_server.process.send_signal(signal.SIGTERM)
    own_server.process.send_signal(signal.SIGCONT)
    for _ in range(50):
        np.testing.assert_array_equal(wire.receive().rows()[0], rows_of(1, FEASIGNS[:100]))
    status, _ = own_server.stop()
    assert status == 0


def test_an_idle_server_burns_no_cpu(server: ServerProcess) -> None:
    wires = [server.wire() for _ in range(20)]
    for wire in wires:
        wire.ask(PING)
    before = server.cpu_s()
    time.sleep(1.5)
    assert server.cpu_s() - before <= 0.1


def test_a_server_imports_little() -> None:
    code = (
        "import sys; sys.argv[1:] = ['cube', 'server', '--help']\n"
        "from elasticctr.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: print([m for m in ('torch', 'numpy', 'pyarrow') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "--token-file" in done.stdout and done.stdout.endswith("[]\n")


def test_a_taken_port_and_a_missing_directory_say_so(server: ServerProcess, tmp_path: Path) -> None:
    base = [sys.executable, "-m", "elasticctr", "cube", "server", "--data"]
    taken = subprocess.run(
        [*base, str(server.data), "--port", str(server.port)], capture_output=True, text=True, timeout=60
    )
    assert taken.returncode == 17 and f":{server.port}" in taken.stderr
    missing = subprocess.run([*base, str(tmp_path / "none")], capture_output=True, text=True, timeout=60)
    assert missing.returncode == 12 and "none" in missing.stderr


def test_small_lookups_in_one_packet(server: ServerProcess) -> None:
    """They are searched together, and each gets its own answer, error and found bits."""
    wire = server.wire()
    rng = np.random.default_rng(5)
    asked: dict[int, tuple[str, np.ndarray]] = {}
    pool = np.concatenate([FEASIGNS[:500], ABSENT])
    there = set(FEASIGNS.tolist())
    for _ in range(300):
        table = str(rng.choice(["ctr/embedding", "ctr/embedding", "ctr/wide", "ctr/none"]))
        some = pool[rng.integers(0, len(pool), rng.integers(0, 20))]
        asked[wire.send(LOOKUP, some.tobytes(), table=table, time_ms=60_000)] = table, some
    for _ in range(len(asked)):
        answer = wire.receive()
        table, some = asked.pop(answer.id)
        if table == "ctr/none":
            assert (answer.status, answer.detail) == (12, 1)
            continue
        rows, found = answer.rows()
        assert found.tolist() == [f in there for f in some.tolist()]
        np.testing.assert_array_equal(rows[found], rows_of(1, some[found]))
        assert not rows[~found].any() and answer.active == 1
