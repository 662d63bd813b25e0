"""Experiments on a running server: shares, sticky users, shadows, two models, the token, the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticctr.errors import Unauthorized
from elasticctr.publish.repository import Repository
from tests.cluster.harness import wait_until
from tests.cluster.predicting import Load, Predictor
from tests.cluster.scored import Scored

TOKEN = "a secret of the test"


def _cli(predictor: Predictor, *arguments: str) -> dict[str, Any]:
    endpoint = ["--endpoint", f"http://127.0.0.1:{predictor.port}", "--json"]
    token = ["--token-file", str(predictor.root / "token")]
    command = [sys.executable, "-m", "elasticctr", "variants", *arguments, *endpoint, *token]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_canary_sticky_shadow_promote(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
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
        with pytest.raises(Unauthorized):
            predictor._token = None
            stranger = Predictor(tmp_path, scored)
            stranger.port = predictor.port
            from elasticctr.cube.control.peer import Peer

            stranger._peer = Peer(f"http://127.0.0.1:{predictor.port}")
            stranger.predict(scored.draw(np.random.default_rng(0)))
        predictor._token = TOKEN
        _cli(predictor, "pause", "--model", "ctr")
        scored.delta()
        status = _cli(predictor, "set", "b=2:0.3", "dark=2:1:shadow", "--sticky", "user_id", "--model", "ctr")
        assert [one["name"] for one in status["variants"]] == ["b", "dark"]
        wait_until(lambda: all(one["serving"] for one in predictor.status()["variants"]), "variants serve", 20)
        with (
            predictor.load(sticky="user_id", rate=600, threads=3) as load,
            Load(other, predictor.port, rate=50, threads=1, model="wide", token=TOKEN) as wide,
        ):
            time.sleep(2.0)
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
        _cli(predictor, "set", "w=wide:0.5", "--model", "ctr")
        answers = [predictor.predict(scored.draw(np.random.default_rng(n))) for n in range(40)]
        assert {answer["variant"] for answer in answers} == {"live", "w"}
        _cli(predictor, "set", "b=2:0.3", "--model", "ctr")
        status = _cli(predictor, "promote", "b", "--model", "ctr")
        assert (status["live"], status["variants"]) == (2, [])
        status = _cli(predictor, "rollback", "--model", "ctr")
        assert status["live"] == 1
        assert _cli(predictor, "activate", "2", "--model", "ctr")["live"] == 2
        assert _cli(predictor, "show", "--model", "ctr")["activations"] == 4


def _metrics(predictor: Predictor) -> str:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", predictor.port, timeout=10)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    text = connection.getresponse().read().decode()
    connection.close()
    return text
