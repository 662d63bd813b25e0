"""A server started from the files of a Paddle Serving installation: its port, its model, its reloadable_meta."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from elasticctr.versions.repository import Repository
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored

TOOLKIT = """
engines {{
  name: "ctr"
  type: "FLUID_CPU_ANALYSIS_DIR"
  reloadable_meta: "{meta}"
  reloadable_type: "timestamp_ne"
  model_data_path: "{place}"
}}
"""


def test_versions_come_when_the_time_file_is_touched(tmp_path: Path) -> None:
    scored = Scored(Repository(str(tmp_path / "repo")))
    scored.base()
    conf, meta = tmp_path / "conf", tmp_path / "fluid_time_file"
    conf.mkdir()
    meta.touch()
    (conf / "model_toolkit.prototxt").write_text(TOOLKIT.format(meta=meta, place=tmp_path / "repo" / "ctr"))
    samples = scored.draw(np.random.default_rng(0), 5)
    with Predictor(tmp_path, scored) as predictor:
        arguments = ["--paddle-conf", str(conf), "--port", "0", "--grpc-port", "-1"]
        predictor.run(*arguments, XDG_CACHE_HOME=str(tmp_path / "cache"))
        predictor.wait_live(1)
        scored.delta()
        time.sleep(1.5)  # it has looked since
        assert predictor.predict(samples)["version"] == 1
        meta.touch()
        predictor.wait_live(2)
        answer = predictor.predict(samples)
        assert scored.is_right(2, samples, answer["scores"])
