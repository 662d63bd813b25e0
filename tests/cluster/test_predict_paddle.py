"""A migrated Paddle Serving installation: the server is started with the old configuration files, the old client's
calls are answered, and a new version is served once the time stamp file is touched, not before."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from elasticctr.serve import protobuf
from elasticctr.versions.repository import Repository
from tests.cluster.harness import START_S, Process, wait_until
from tests.cluster.scored import Sample, Scored
from tests.unit.compat.paddle_serving import seed_files
from tests.unit.serve.brpc_peer import CTR, GENERAL, BrpcPeer, ctr_request, message

MODEL = "ctr_prediction"


def start(root: Path) -> tuple[Process, int]:
    """`elasticctr serve` with the guide's files, except for the location of rows and the port."""
    conf = root / "conf"
    conf.mkdir()
    (conf / "model_toolkit.prototxt").write_text(seed_files.MODEL_TOOLKIT.replace("REMOTE", "LOCAL"))
    (conf / "gflags.conf").write_text("--reload_interval_s=1\n--enable_model_toolkit\n")
    log = root / "serve.log"
    arguments = ["serve", "--paddle-conf", str(conf), "--port", "0", "--grpc-port", "-1", "--json"]
    process = Process("serve", [*arguments, "--drain", "0.3"], log, environ={"XDG_CACHE_HOME": str(root / "cache")})

    def listening() -> dict[str, Any]:
        process.check_running()
        found = [line for line in log.read_bytes().split(b"\n")[:-1] if line.startswith(b"{")]
        return json.loads(found[0]) if found else {}

    return process, int(wait_until(listening, "elasticctr serve listens", START_S)["port"])


def ask_ctr(peer: BrpcPeer, samples: list[Sample]) -> tuple[int, list[float]]:
    reply = peer.call(CTR, ctr_request([([s.user, *s.ads], list(s.x)) for s in samples]))
    return int(reply.user_fields["version"]), [p.prob1 for p in reply.parse("ctr.Response").predictions]


def ask_tensors(peer: BrpcPeer, samples: list[Sample]) -> tuple[int, list[float]]:
    request = message("general.Request")
    request.tensor.add(name="C1", int64_data=[protobuf.to_signed(s.user) for s in samples], shape=[len(samples), 1])
    ads = [protobuf.to_signed(ad) for s in samples for ad in s.ads]
    lod = np.cumsum([0, *(len(s.ads) for s in samples)]).tolist()
    request.tensor.add(name="embedding_1.tmp_0", int64_data=ads, lod=lod)
    request.tensor.add(name="dense_input", float_data=[v for s in samples for v in s.x], shape=[len(samples), 2])
    request.fetch_var_names.append("prob")
    reply = peer.call(GENERAL, request.SerializeToString())
    tensor = reply.parse("general.Response").outputs[0].tensor[0]
    return int(reply.user_fields["version"]), np.reshape(tensor.float_data, (-1, 2))[:, 1].tolist()


def test_an_old_installation_goes_on_here(tmp_path: Path) -> None:
    place = tmp_path / "data/model/paddle/fluid"
    place.mkdir(parents=True)
    stamp = tmp_path / "data/model/paddle/fluid_time_file"
    stamp.touch()
    scored = Scored(Repository(str(place)), model=MODEL)
    first = scored.base()
    process, port = start(tmp_path)
    seen: set[int] = set()
    wrong: list[str] = []
    is_over = threading.Event()

    def keep_asking() -> None:
        random = np.random.default_rng(0)
        try:
            with BrpcPeer(port) as peer:
                while not is_over.is_set():
                    samples = scored.draw(random, 4)
                    version, scores = ask_tensors(peer, samples)
                    seen.add(version)
                    if not scored.is_right(version, samples, scores):
                        wrong.append(f"not as version {version} scores: {scores}")
        except Exception as e:
            wrong.append(repr(e))

    def answers() -> bool:
        with BrpcPeer(port) as peer:
            return peer.call(CTR, ctr_request([([1, 2], [0.0, 0.0])])).error_code == 0

    try:
        wait_until(answers, "a version answers", START_S)
        with BrpcPeer(port) as peer:
            samples = [s for s in scored.draw(np.random.default_rng(1), 40) if len(s.ads) == 1]
            version, scores = ask_ctr(peer, samples)
            assert version == first
            assert scored.is_right(version, samples, scores)
        asker = threading.Thread(target=keep_asking)
        asker.start()
        wait_until(lambda: seen or wrong, "the first version answers")
        second = scored.delta()
        time.sleep(3)  # more than two looks at the file
        assert seen == {first}
        os.utime(stamp)
        wait_until(lambda: second in seen or wrong, "the second version answers")
        is_over.set()
        asker.join(60)
        assert wrong == []
    finally:
        is_over.set()
        process.kill()
    told = (tmp_path / "serve.log").read_text(errors="replace")
    assert "engine 'image_classification_resnet'" in told
    assert "enable_batch_align is ignored" in told
