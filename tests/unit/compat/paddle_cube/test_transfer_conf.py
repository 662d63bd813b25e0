"""transfer.conf of Paddle's Cube is read with the same meaning; mistakes name their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticctr.compat.paddle_cube.transfer_conf import read_transfer_conf, transfer_host
from elasticctr.config import load_yaml, parse_settings
from elasticctr.cube.transfer.settings import TransferSettings
from elasticctr.errors import ConfigError

CONF = """
[default]
// the demo's
dict_name: test_dict
mode: base_delta
download_mode: http
wget_port: 8009
buildtool_local: /srv/cube/bin/cube-builder
donefile_address: http://10.0.0.9:8080/data/donefile/
output_address: /srv/cube/output
tmp_address: /srv/cube/tmp
shard_num: 2
copy_num: 2
deploy_path: /srv/cube/test_dict
transfer_address: 10.0.0.1

[cube_agent]
agent0_0: 10.0.0.11:8001
cube0_0: 10.0.0.11:8000:/ssd2/cube_open
agent0_1: 10.0.0.12:8001
cube0_1: 10.0.0.12:8000:/ssd2/cube_open
agent1_0: 10.0.0.21:8001
agent1_1: 10.0.0.22:8001
# beyond copy_num
agent1_2: 10.0.0.23:8001
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "transfer.conf"
    path.write_text(text)
    return path


def test_a_file_of_paddles_means_the_same_here(tmp_path: Path) -> None:
    settings, with_patches, ignored = read_transfer_conf(write(tmp_path, CONF))
    assert with_patches
    assert (settings.models, settings.format, settings.build.sharding) == (("test_dict",), "sequencefile", "modulo")
    assert settings.repository == "http://10.0.0.9:8080/data/donefile/"
    assert settings.state == Path("/srv/cube/tmp")
    assert [[one.agent for one in shard] for shard in settings.shards] == [
        ["http://10.0.0.11:8001", "http://10.0.0.12:8001"],
        ["http://10.0.0.21:8001", "http://10.0.0.22:8001"],
    ]
    assert settings.shards[0][0].server == "http://10.0.0.11:8000"
    assert transfer_host(tmp_path / "transfer.conf") == "10.0.0.1"
    told = " ".join(ignored)
    for key in ("wget_port", "buildtool_local", "deploy_path", "output_address", "download_mode", "agent1_2"):
        assert key in told


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("shard_num: 2", "shard_num: two", "must be a number"),
        ("shard_num: 2", "shard_num: 3", "agent2_0 is missing"),
        ("dict_name: test_dict", "", "dict_name is missing"),
        ("mode: base_delta", "mode: both", "base_only or base_delta"),
        ("deploy_path", "deploy_pth", "unknown keys: deploy_pth"),
        ("[cube_agent]", "[agents]", "unknown section"),
        ("agent0_0", "agentX", "expected agent<shard>"),
        ("dict_name: test_dict", "dict_name: ../x", "not a model name"),
        ("10.0.0.12:8001", "10.0.0.11:8001", "listed twice"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_transfer_conf(write(tmp_path, CONF.replace(old, new, 1)))


def test_the_sample_file_is_valid_and_says_the_defaults() -> None:
    path = Path(__file__).resolve().parents[4] / "deploy/samples/transfer.yaml"
    settings = parse_settings(TransferSettings, load_yaml(path), str(path))
    plain = {"repository": "x", "models": ["ctr"], "state": "y", "shards": settings.model_dump()["shards"]}
    defaults = parse_settings(TransferSettings, plain, "plain")
    for key in ("format", "source", "poll_s", "resident", "require", "build", "patience"):
        assert getattr(settings, key) == getattr(defaults, key), key
    given = load_yaml(path)
    assert {*given, "tls"} == set(TransferSettings.model_fields)
    for section in ("require", "build", "patience"):
        assert set(given[section]) == set(type(getattr(settings, section)).model_fields), section


def test_an_impossible_policy_is_refused() -> None:
    shards = [[{"agent": "http://a:1"}]]
    base = {"repository": "x", "models": ["ctr"], "state": "y", "shards": shards}
    with pytest.raises(ConfigError, match="min_replicas"):
        parse_settings(TransferSettings, base | {"require": {"min_replicas": 2}}, "t")
    with pytest.raises(ConfigError, match="without replicas"):
        parse_settings(TransferSettings, base | {"shards": [[]]}, "t")
    with pytest.raises(ConfigError, match="expected an address"):
        parse_settings(TransferSettings, base | {"shards": [[{"agent": "a:1"}]]}, "t")
