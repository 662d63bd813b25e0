"""Experiments on a running server: shares, sticky users, shadows, two models, the token, the command line."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.errors import Unauthorized
from elasticctr.net.access import write_token
from elasticctr.net.client import Peer
from elasticctr.versions.repository import Repository
from tests.cluster.harness import wait_until
from tests.cluster.predicting import Load, Predictor
from tests.cluster.scored import Scored

TOKEN = "a secret of the test"


def _cli(predictor: Predictor, *arguments: str) -> dict[str, Any]:
    """`elasticctr serving …`, in this process: there are many of them."""
    endpoint = ["--endpoint", f"http://127.0.0.1:{predictor.port}", "--json", "--model", "ctr"]
    done = CliRunner().invoke(app, ["serving", *arguments, *endpoint, "--token-file", str(predictor.root / "token")])
    assert done.exit_code == 0, done.output
    answer: dict[str, Any] = json.loads(done.output)
    return answer


def test_canary_sticky_shadow_promote(tmp_path: Path) -> None:
    write_token(tmp_path / "token", TOKEN)
    scored = Scored(Repository(str(tmp_path / "repo")))
    other = Scored(Repository(str(tmp_path / "other")), model="wide", seed=3)
    scored.base()
    other.base()
    models = [
        {"name": "ctr", "repo": str(tmp_path / "repo")},
        {"name": "wide", "repo": str(tmp_path / "other")},
    ]
    with Predictor(tmp_path, scored, tmp_path / "token", TOKEN) as predictor:
        predictor.start(models=models)
        predictor.wait_live(1)
        predictor.wait_live(1, "wide")
        with Peer(f"http://127.0.0.1:{predictor.port}", "another secret") as stranger, pytest.raises(Unauthorized):
            stranger.post("/v1/models/ctr:pause", {})
        _cli(predictor, "pause")
        scored.delta()
        status = _cli(predictor, "variants", "b=2:0.3", "dark=2:1:shadow", "--sticky", "user_id")
        assert [one["name"] for one in status["variants"]] == ["b", "dark"]
        wait_until(lambda: all(one["serving"] for one in predictor.status()["variants"]), "variants serve")
        with (
            predictor.load(sticky="user_id", rate=600, threads=3) as load,
            Load(other, predictor.port, rate=50, threads=1, model="wide", token=TOKEN) as wide,
        ):
            wait_until(lambda: len(load.answered.by_sticky) > 450 and wide.answered.requests, "many users")
        found = load.check()
        assert wide.check().variants.keys() == {"live"}
        users = {user: variants.pop() for user, variants in found.by_sticky.items() if len(variants) == 1}
        assert len(users) == len(found.by_sticky), "a user has one variant"
        share = sum(variant == "b" for variant in users.values()) / len(users)
        assert 0.2 < share < 0.4, share
        assert set(found.versions) == {1, 2}
        assert "dark" not in found.variants
        text = _metrics(predictor)
        assert 'variant="dark"' in text and 'variant="b"' in text
        _cli(predictor, "variants", "w=wide:0.5")
        answers = [predictor.predict(scored.draw(np.random.default_rng(n))) for n in range(40)]
        assert {answer["variant"] for answer in answers} == {"live", "w"}
        _cli(predictor, "variants", "b=2:0.3")
        status = _cli(predictor, "promote", "b")
        assert (status["live"], status["variants"]) == (2, [])
        status = _cli(predictor, "rollback")
        assert status["live"] == 1
        assert _cli(predictor, "activate", "2")["live"] == 2
        assert _cli(predictor, "status")["activations"] == 4


def _metrics(predictor: Predictor) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", predictor.port, timeout=60)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    text = connection.getresponse().read().decode()
    connection.close()
    return text
