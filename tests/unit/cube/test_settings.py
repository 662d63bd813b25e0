"""Client settings: the older cube.conf as it is, cube.yaml, and what is said about mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticctr.cube.client import CubeClient
from elasticctr.cube.settings import CubeSettings, load_conf, parse_addresses, parse_cube_conf
from elasticctr.errors import ConfigError, FailedPrecondition, NotFound
from elasticctr.net.access import write_token

# As in Paddle Serving's deployment guide, with a second table.
PADDLE_CONF: list[dict[str, Any]] = [
    {
        "dict_name": "dict",
        "shard": 2,
        "dup": 1,
        "timeout": 200,
        "retry": 3,
        "backup_request": 100,
        "type": "ipport_list",
        "load_balancer": "rr",
        "nodes": [{"ipport_list": "list://10.0.0.1:8000"}, {"ipport_list": "list://10.0.0.2:8000"}],
    }
]


def conf(**changes: Any) -> str:
    return json.dumps([{k: v for k, v in (PADDLE_CONF[0] | changes).items() if v is not None}])


def test_paddles_cube_conf_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cube.conf"
    path.write_text(json.dumps(PADDLE_CONF))
    (cluster,) = load_conf(path, model="ctr")
    assert cluster.shards == (("10.0.0.1:8000",), ("10.0.0.2:8000",))
    assert (cluster.timeout_ms, cluster.retries, cluster.backup_ms) == (200, 3, 100)
    assert (cluster.load_balancer, cluster.tables, cluster.model) == ("round_robin", ("dict",), "ctr")


def test_node_types() -> None:
    nodes = [{"ip": "10.0.0.1", "port": 8000}, {"ip": "10.0.0.2", "port": 8001}]
    (cluster,) = parse_cube_conf(conf(type="ipport", nodes=nodes), "cube.conf")
    assert cluster.shards == (("10.0.0.1:8000",), ("10.0.0.2:8001",))
    (cluster,) = parse_cube_conf(conf(type="ipport_parallel", shard=8, nodes=nodes[:1]), "cube.conf")
    assert cluster.shards == (("10.0.0.1:8000",),)
    listed = [{"ipport_list": "list://a:1, b:2"}, {"ipport_list": "list://c:3,d:4"}]
    (cluster,) = parse_cube_conf(conf(dup=2, nodes=listed, load_balancer="la", backup_request=-1), "cube.conf")
    assert cluster.shards == (("a:1", "b:2"), ("c:3", "d:4"))
    assert (cluster.load_balancer, cluster.backup_ms) == ("least_loaded", 0)


def test_tables_on_the_same_servers_are_one_cluster() -> None:
    entries = [
        PADDLE_CONF[0],
        PADDLE_CONF[0] | {"dict_name": "other"},
        PADDLE_CONF[0] | {"dict_name": "slow", "timeout": 900},
    ]
    clusters = parse_cube_conf(json.dumps(entries), "cube.conf")
    assert [c.tables for c in clusters] == [("dict", "other"), ("slow",)]


def test_a_table_goes_to_its_servers() -> None:
    entries = [PADDLE_CONF[0], PADDLE_CONF[0] | {"dict_name": "m2/other", "timeout": 900}]
    client = CubeClient(parse_cube_conf(json.dumps(entries), "cube.conf", model="m1"))
    assert client._find("dict")[1] == client._find("m1/dict")[1] == "m1/dict"
    assert client._find("m2/other")[0].settings.timeout_ms == 900
    with pytest.raises(NotFound, match="only for m1/dict, m2/other"):
        client.get("m1/other", [1])
    with pytest.raises(FailedPrecondition, match="different servers"):
        client.get_many({"dict": [1], "m2/other": [1]})


def test_dup_that_does_not_match_the_nodes_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    (cluster,) = parse_cube_conf(conf(dup=3), "cube.conf")
    assert len(cluster.shards[0]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "entry 0 (dict): 'dup' is 3, but nodes[0] lists 1 replicas" in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shard": 3}, "'shard' is 3 and 'nodes' has 2"),
        ({"shard": "2"}, "'shard' is \"2\", expected a whole number"),
        ({"timeout": None}, "'timeout' is required"),
        ({"dict_name": None}, "'dict_name' is required"),
        ({"dict_name": "../x"}, "not a table name"),
        ({"type": "zk"}, "'type' 'zk' is none of"),
        ({"load_balancer": "best"}, "'load_balancer' 'best' is none of rr"),
        ({"nodes": [{"ip": "a", "port": 1}] * 2}, "nodes.0.: 'ipport_list' is required"),
        ({"nodes": [{"ipport_list": "a:1"}] * 2}, "expected list://"),
        ({"nodes": [{"ipport_list": "list://"}] * 2}, "shard 0 has 0 replicas"),
        ({"timeout": 0}, "timeout_ms"),
    ],
)
def test_a_mistake_names_file_and_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"conf/cube.conf: entry 0") as caught:
        parse_cube_conf(conf(**changes), "conf/cube.conf")
    assert caught.match(message)


@pytest.mark.parametrize("text", ["[", "[1]", "[]", '{"a": 1'])
def test_an_unreadable_settings_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cube.conf").write_text(text)
    with pytest.raises(ConfigError, match=r"cube\.conf"):
        load_conf(tmp_path / "cube.conf")
    with pytest.raises(NotFound):
        load_conf(tmp_path / "none")


def test_yaml(tmp_path: Path) -> None:
    path = tmp_path / "cube.yaml"
    path.write_text("model: ctr\nshards:\n  - [a:1, b:2]\n  - [unix:/run/cube.sock]\ntoken_file: token\nretries: 2\n")
    (cluster,) = load_conf(path)
    assert cluster.shards == (("a:1", "b:2"), ("unix:/run/cube.sock",))
    write_token(tmp_path / "token", " s3cret of sixteen")
    assert cluster.token() == "s3cret of sixteen"
    path.write_text("shard: [[a:1]]\n")
    with pytest.raises(ConfigError, match="did you mean 'shards'"):
        load_conf(path)
    path.write_text("shards: [[a:1, a:1]]\n")
    with pytest.raises(ConfigError, match="names a replica twice"):
        load_conf(path)


@pytest.mark.parametrize("address", ["", "host", "host:", "host:0", "host:70000", ":80", "host:8o", "unix:"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(ConfigError, match=r"address|replicas"):
        CubeClient(CubeSettings(shards=((address,),)))


def test_addresses_in_one_line() -> None:
    assert parse_addresses("a:1, b:2; c:3;").shards == (("a:1", "b:2"), ("c:3",))
    with pytest.raises(ConfigError):
        parse_addresses(" ")
