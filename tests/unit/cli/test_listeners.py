"""No command listens to the network without access control."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.ps.conftest import make_job
from typer.testing import CliRunner

from elasticctr.cli.app import app

TRANSFER = {"repository": "repo", "models": ["ctr"], "state": "state", "shards": [[{"agent": "http://127.0.0.1:1"}]]}
COMMANDS = {
    "cube server": ["cube", "server", "--data", ".", "--port", "0"],
    "cube agent": ["cube", "agent", "--endpoint", "http://127.0.0.1:1", "--data", ".", "--port", "0"],
    "cube transfer": ["cube", "transfer", "--config", "transfer.yaml", "--port", "0"],
    "serve": ["serve", "--repo", "repo", "--model", "ctr", "--port", "0"],
    "coordinator": ["coordinator", "--config", "job.yaml", "--port", "0"],
    "pserver": ["pserver", "--config", "job.yaml", "--shard", "0"],
}


@pytest.mark.promise(
    "a server started on 0.0.0.0 without a token or client certificates",
    "every role refuses to start and names `elasticctr token`, unless --insecure",
)
@pytest.mark.parametrize("name", COMMANDS)
def test_an_open_address_without_a_token_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "transfer.yaml").write_text(json.dumps(TRANSFER))
    job = make_job(tmp_path).model_dump(mode="json", by_alias=True)
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    before = sorted(tmp_path.iterdir())
    done = CliRunner().invoke(app, [*COMMANDS[name], "--host", "0.0.0.0"])
    assert done.exit_code == 10, done.output
    assert f"{name}: 0.0.0.0 can be reached from other machines" in done.stderr
    assert "elasticctr token FILE" in done.stderr and "--insecure" in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listener_has_the_same_flags(name: str) -> None:
    words = COMMANDS[name][: 2 if name.startswith("cube") else 1]
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).stdout
    assert "--token-file" in shown and "--insecure" in shown
    assert name == "pserver" or "--read-token-file" in shown


def test_loopback_is_where_servers_listen_by_default() -> None:
    from elasticctr.cube.agent.process import AgentOptions
    from elasticctr.cube.server import CubeServerOptions as CubeServerOptions
    from elasticctr.cube.transfer.process import TransferOptions
    from elasticctr.ps.pserver.pserver import PServerOptions
    from elasticctr.serve.kserve.grpc_server import GrpcOptions
    from elasticctr.serve.server import PredictServerOptions
    from elasticctr.serve.settings import ServeSettings
    from elasticctr.train.cluster_settings import ClusterSettings

    for options in (
        AgentOptions,
        CubeServerOptions,
        TransferOptions,
        PServerOptions,
        GrpcOptions,
        PredictServerOptions,
    ):
        assert options.__dataclass_fields__["host"].default == "127.0.0.1", options
    for settings in (ServeSettings, ClusterSettings):
        assert settings.model_fields["host"].default == "127.0.0.1", settings
