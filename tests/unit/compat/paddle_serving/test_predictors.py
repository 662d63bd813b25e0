"""predictors.prototxt of Paddle Serving: variants, weights, clusters and mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.compat.paddle_serving import seed_files

from elasticctr.compat.paddle_serving import read_predictors
from elasticctr.errors import ConfigError, NotFound

CTR = "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService"
DEFAULT = """
default_variant_conf {
  tag: "default"
  connection_conf {
    connect_timeout_ms: 2000
    rpc_timeout_ms: 20000
    connect_retry_count: 2
    max_connection_per_host: 100
    hedge_request_timeout_ms: -1
    hedge_fetch_retry_count: 2
    connection_type: "pooled"
  }
  naming_conf {
    cluster_filter_strategy: "Default"
    load_balance_strategy: "la"
  }
  rpc_parameter {
    compress_type: 0
    package_size: 20
    protocol: "baidu_std"
    max_channel_per_request: 3
  }
}
"""


def predictor(name: str = "ctr", weights: str = "50", variants: str = "", service: str = CTR) -> str:
    variants = variants or 'variants { tag: "var1" naming_conf { cluster: "list://127.0.0.1:8010" } }'
    return (
        f'predictors {{ name: "{name}" service_name: "{service}" endpoint_router: "WeightedRandomRender" '
        f'weighted_random_render_conf {{ variant_weight_list: "{weights}" }} {variants} }}\n'
    )


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "predictors.prototxt"
    path.write_text(text)
    return path


def test_the_guides_file_as_it_is(tmp_path: Path) -> None:
    settings, notes = read_predictors(write(tmp_path, DEFAULT + seed_files.PREDICTORS))
    (variant,) = settings.variants
    assert (variant.name, variant.weight) == ("var1", 50)
    assert [endpoint.url for endpoint in variant.endpoints] == ["http://127.0.0.1:8010"]
    assert (settings.timeout_ms, settings.connect_ms, settings.retries, settings.hedge_ms) == (20000, 2000, 2, 0)
    assert settings.balancer == "least_loaded"
    assert settings.idle_connections == 100
    assert any("connection_type is ignored" in note for note in notes)
    assert not any("compress_type" in note for note in notes)  # it says nothing but the default
    # Without the defaults' part, theirs.
    alone, _ = read_predictors(write(tmp_path, seed_files.PREDICTORS))
    assert (alone.timeout_ms, alone.connect_ms, alone.retries) == (20000, 2000, 2)


def test_variants_with_weights_clusters_and_their_own_ways(tmp_path: Path) -> None:
    variants = """
      variants { tag: "a" naming_conf { cluster: "list://10.0.0.1:9292,10.0.0.2:9292 3" load_balance_strategy: "rr" }
                 connection_conf { rpc_timeout_ms: 500 hedge_request_timeout_ms: 20 } }
      variants { tag: "b" naming_conf { cluster: "list://[::1]:9293" } connection_conf { rpc_timeout_ms: 900 }
                 split_conf { split_tag_name: "x" } rpc_parameter { compress_type: 2 protocol: "http" } }
    """
    settings, notes = read_predictors(write(tmp_path, DEFAULT + predictor(weights="50|30", variants=variants)))
    assert [(v.name, v.weight) for v in settings.variants] == [("a", 50), ("b", 30)]
    assert [(e.url, e.weight) for e in settings.variants[0].endpoints] == [
        ("http://10.0.0.1:9292", 1),
        ("http://10.0.0.2:9292", 3),
    ]
    assert settings.balancer == "round_robin"
    assert (settings.timeout_ms, settings.hedge_ms) == (500, 20)
    told = "\n".join(notes)
    assert "all variants use that of the first one" in told
    assert "split_conf is ignored" in told
    assert "compress_type is ignored" in told
    assert "the client speaks JSON over HTTP" in told


def test_one_of_several_predictors(tmp_path: Path) -> None:
    other = predictor("bert", service="baidu.paddle_serving.predictor.bert_service.BertService")
    path = write(tmp_path, other + predictor("ctr"))
    assert read_predictors(path)[0].variants[0].name == "var1"  # the only one whose service there is
    _, notes = read_predictors(path, "bert")
    assert any("BertService is not served here" in note for note in notes)
    with pytest.raises(NotFound, match=r"no predictor 'x'.* has bert, ctr"):
        read_predictors(path, "x")
    with pytest.raises(ConfigError, match=r"give the name of a predictor: .* has a, b"):
        read_predictors(write(tmp_path, predictor("a") + predictor("b")))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (predictor(weights="50|30"), "2 weights for 1 variants"),
        (predictor(weights="many"), "weights must be whole numbers"),
        (predictor(weights="0"), "not all 0"),
        (predictor(variants='variants { tag: "a" }'), "variant 'a' has no cluster"),
        (predictor(variants='variants { tag: "a" naming_conf { cluster: "bns://x" } }'), "list://HOST:PORT"),
        (predictor(variants='variants { tag: "a" naming_conf { cluster: "list://a:1,,b:2" } }'), "in cluster"),
        (predictor(variants='variants { tag: "a" naming_conf { cluster: "list://h:99999999" } }'), "in cluster"),
        (
            predictor(
                variants='variants { tag: "a" naming_conf { load_balance_strategy: "best" cluster: "list://h:1" } }'
            ),
            "'best' is none of rr, random, la",
        ),
        (
            predictor(weights="1|1", variants='variants { tag: "a" naming_conf { cluster: "list://h:1" } }' * 2),
            "two variants are named 'a'",
        ),
        (
            'predictors { name: "a" service_name: "x" endpoint_router: "WeightedRandomRender" }',
            "give the name of a predictor",
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_predictors(write(tmp_path, text))
