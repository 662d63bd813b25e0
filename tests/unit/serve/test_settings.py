"""serve.yaml and the equivalent flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticctr.errors import ConfigError
from elasticctr.serve.settings import ServeSettings, load_settings


def _load(tmp_path: Path, text: str, environ: dict[str, str] | None = None, **flags: Any) -> ServeSettings:
    path = tmp_path / "serve.yaml"
    path.write_text(text)
    return load_settings(path, flags, environ or {})


MODELS = "models: [{name: ctr, repo: repo, cube: cube.yaml}, {name: old, repo: 's3://b/repo', published_as: ctr}]\n"


def test_flags_make_the_settings_of_one_model() -> None:
    flags = {"repo": "r", "name": "ctr", "port": 0, "cube": None, "tls_cert": "c", "tls_key": "k"}
    settings = load_settings(None, flags, {})
    assert [(m.name, m.published, m.repo, m.cube) for m in settings.models] == [("ctr", "ctr", "r", None)]
    assert (settings.port, settings.grpc_port) == (0, 8501)
    assert settings.tls is not None and settings.tls.key == Path("k")


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    settings = _load(tmp_path, MODELS + "token_file: t\naccess_log: '-'\n", token_file=None)
    assert settings.models[0].repo == str(tmp_path / "repo")
    assert settings.models[0].cube == tmp_path / "cube.yaml"
    assert (settings.models[1].repo, settings.models[1].published) == ("s3://b/repo", "ctr")
    assert (settings.token_file, settings.access_log) == (tmp_path / "t", Path("-"))


def test_precedence_is_default_file_environment_flag(tmp_path: Path) -> None:
    text = MODELS + "port: 1\nhost: a\nlimits: {samples: 5}\n"
    environ = {
        "ELASTICCTR__SERVE__PORT": "2",
        "ELASTICCTR__SERVE__LIMITS__SAMPLES": "6",
        "ELASTICCTR__TRAIN__EPOCHS": "1",
    }
    assert _load(tmp_path, text).port == 1
    from_environ = _load(tmp_path, text, environ)
    assert (from_environ.port, from_environ.host, from_environ.limits.samples) == (2, "a", 6)
    assert _load(tmp_path, text, environ, port=3).port == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing to serve"),
        ("models: []", "nothing to serve"),
        ("models: [{name: ctr, repo: r}]\nporrt: 1", "did you mean 'port'"),
        ("models: [{name: ctr, rpo: r}]", "did you mean 'repo'"),
        ("models: [{name: ctr, repo: r}, {name: ctr, repo: q}]", "two models are named 'ctr'"),
        ("models: [{name: a/b, repo: r}]", "a name has up to 64"),
        ("models: [{name: a, repo: r, variants: [{name: b}]}]", "give a version, or another model"),
        ("models: [{name: a, repo: r, variants: [{name: b, model: c}]}]", "not another model of this server"),
        ("models: [{name: a, repo: r, variants: [{name: b, version: 1, weight: 1.5}]}]", "must add up to at most 1"),
        ("models: [{name: a, repo: r, variants: [{name: live, weight: 0}]}]", "no variant has a weight above 0"),
        ("models: [{name: a, repo: r, variants: [{name: live, version: 3}]}]", "is the model's live version"),
        ("models: [{name: a, repo: r, policy: {missing_rows: explode}}]", "missing_rows"),
        ("models: [{name: a, repo: r, verify: {warmup: [0]}}]", "warm-up"),
        ("models: 7", "models"),
        ("limits: 7\nmodels: [{name: a, repo: r}]", "limits"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _load(tmp_path, text)


def test_a_mistake_in_the_environment_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'port'"):
        _load(tmp_path, MODELS, {"ELASTICCTR__SERVE__PORRT": "1"})


def test_a_model_is_named_in_one_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--repo, --model: the settings file lists the models"):
        _load(tmp_path, MODELS, repo="r", name="ctr")
    with pytest.raises(ConfigError, match="nothing to serve"):
        load_settings(None, {"repo": "r"}, {})
