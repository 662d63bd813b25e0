"""Paddle Serving's clients, over bRPC and HTTP, against a server in this process: the scores of versions/scoring.py."""

from __future__ import annotations

import base64
import json
import random
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from google.protobuf import json_format
from numpy.typing import NDArray
from tests.unit.serve.brpc_peer import CTR, GENERAL, BrpcPeer, ctr_request, frame, message
from tests.unit.serve.live import server_options
from tests.unit.serve.making import Made, make_graph, make_schema

from elasticctr import _native
from elasticctr.data.batch import Batch
from elasticctr.errors import ConfigError
from elasticctr.net.access import Tokens
from elasticctr.serve import protobuf
from elasticctr.serve.activation.served_version import make_served_version
from elasticctr.serve.server import PredictServer
from elasticctr.versions.samples import make_batch
from elasticctr.versions.serving_schema import ServingSchema

SPARSE = ("user", "tags", "unused", "ad", "clicked")
DENSE_DIM = 4


class Live:
    def __init__(self, folder: Path, **options: Any) -> None:
        self.made = Made(folder)
        self.schema: ServingSchema = make_schema()
        self.graph = make_graph()
        version = make_served_version("ctr", 7, self.schema, self.graph, self.made.local(), None, "graph")
        other = make_served_version("other", 7, self.schema, make_graph(seed=9), self.made.local(), None, "graph")
        self.server = PredictServer(server_options(**options))
        self.server.set_models(
            [
                ("other", "", 0, False, [("live", 1.0, False, other)]),
                ("ctr", "", 0, True, [("live", 1.0, False, version)]),
            ]
        )
        self.server.start()
        self.port = self.server.port

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.post(f"http://127.0.0.1:{self.port}{path}", content=content, headers=headers, timeout=60)

    def expected(self, batch: Batch, seed: int = 3) -> NDArray[np.float32]:
        return self.made.expected(self.schema, make_graph(seed=seed), batch)[:, 0]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    made = Live(tmp_path_factory.mktemp("paddle"), body_mib=1, samples=300)
    yield made
    made.server.stop(5)


def single_valued(live: Live, count: int, seed: int) -> tuple[list[tuple[list[int], list[float]]], Batch]:
    chance = np.random.default_rng(10_000 + seed)  # not the numbers that feasigns were made of
    ids = chance.choice(live.made.feasigns, (count, len(SPARSE)))
    ids[::3, 1] = chance.integers(0, 1 << 64, len(ids[::3]), dtype=np.uint64)  # some without a row
    dense = chance.normal(size=(count, DENSE_DIM)).astype(np.float32)
    batch = make_batch(live.schema.samples, [[[int(v)] for v in ids[:, s]] for s in range(len(SPARSE))], dense.tolist())
    return [(ids[i].tolist(), dense[i].tolist()) for i in range(count)], batch


def tensors(batch: Batch, names: tuple[str, ...] = SPARSE, dense: str = "dense_input") -> Any:
    """The batch as a GeneralModelService request: lods for sparse slots, a shape for dense values."""
    request = message("general.Request")
    for number, name in enumerate(names):
        values, offsets = batch.slot(number)
        request.tensor.add(
            name=name,
            int64_data=[protobuf.to_signed(int(v)) for v in values],
            lod=(offsets - offsets[0]).tolist(),
            shape=[len(values)],
        )
    request.tensor.add(name=dense, float_data=batch.dense.ravel().tolist(), shape=[len(batch), DENSE_DIM], elem_type=1)
    return request


@pytest.mark.parametrize("count", [1, 50])
def test_ctr_prediction_over_brpc(live: Live, count: int) -> None:
    instances, batch = single_valued(live, count, seed=count)
    with BrpcPeer(live.port) as peer:
        reply = peer.call(CTR, ctr_request(instances), log_id=5)
    response = reply.parse("ctr.Response")
    assert response.err_code == 0
    scores = np.array([p.prob1 for p in response.predictions])
    assert np.abs(scores - live.expected(batch)).max() <= 1e-6
    assert np.abs(np.array([p.prob0 for p in response.predictions]) + scores - 1).max() <= 1e-6
    assert reply.user_fields["model"] == "ctr"
    assert reply.user_fields["version"] == "7"
    found, asked = map(int, reply.user_fields["coverage"].split("/"))
    assert asked == 4 * count  # the model does not look at one of the five
    assert 0 < found < asked


@pytest.mark.parametrize(
    "names",
    [SPARSE, tuple(f"C{i}" for i in range(1, 6)), tuple("12345"), tuple(f"embedding_{i}.tmp_0" for i in range(5))],
)
def test_tensors_by_every_kind_of_name(live: Live, names: tuple[str, ...]) -> None:
    batch = live.made.samples(live.schema, 60)
    request = tensors(batch, names)
    request.fetch_var_names.append("sigmoid_0.tmp_0")
    request.log_id = 2**63 + 1
    with BrpcPeer(live.port) as peer:
        response = peer.call(GENERAL, request.SerializeToString(), method="debug").parse("general.Response")
    (output,) = response.outputs
    (tensor,) = output.tensor
    assert (output.engine_name, tensor.name, list(tensor.shape)) == ("ctr", "sigmoid_0.tmp_0", [60, 1])
    assert response.log_id == 2**63 + 1
    assert np.abs(np.array(tensor.float_data) - live.expected(batch)).max() <= 1e-6


def test_other_data_types_and_profile(live: Live) -> None:
    instances, batch = single_valued(live, 3, seed=4)
    request = message(
        "general.Request",
    )
    for s, name in enumerate(SPARSE):
        content = struct.pack("<3q", *(protobuf.to_signed(ids[s]) for ids, _ in instances))
        request.tensor.add(alias_name=name, tensor_content=content, elem_type=0, shape=[3, 1])
    request.tensor.add(name="x", float64_data=[v for _, d in instances for v in d[:2]], shape=[3, 2], elem_type=3)
    request.tensor.add(name="count", float_data=[d[2] for _, d in instances], shape=[3], elem_type=1)
    price = struct.pack("<3f", *(d[3] for _, d in instances))
    request.tensor.add(name="price", tensor_content=price, elem_type=1, shape=[3, 1])
    request.tensor.add(name="label", int64_data=[0, 0, 1], shape=[3, 1])
    request.profile_server = True
    with BrpcPeer(live.port) as peer:
        response = peer.call(GENERAL, request.SerializeToString()).parse("general.Response")
    tensor = response.outputs[0].tensor[0]
    assert (tensor.name, list(tensor.shape)) == ("prob", [3, 2])
    pairs = np.array(tensor.float_data).reshape(3, 2)
    assert np.abs(pairs[:, 1] - live.expected(batch)).max() <= 1e-6
    assert response.profile_server
    assert response.profile_time[0] <= response.profile_time[1]


def test_feeds_of_settings_must_be_slots(live: Live) -> None:
    with pytest.raises(ConfigError, match="'emb' feeds 'nobody', which is not a slot of the model"):
        make_served_version(
            "ctr", 7, live.schema, live.graph, live.made.local(), None, "graph", {"emb": "nobody", "x": "dense_input"}
        )


def test_text_is_hashed_where_the_schema_hashes(live: Live) -> None:
    feasign = _native.feature_hash("user", b"anna", 0)
    batch = make_batch(live.schema.samples, [[[feasign]], [[]], [[]], [[]], [[]]], [[0.0] * 4])
    body = {
        "feed": [{"user": ["anna"], "tags": [], "unused": [], "ad": [], "clicked": [], "dense_input": [0, 0, 0, 0]}]
    }
    answer = live.post("/rec/prediction", body).json()
    assert answer["result"]["prob"][0][1] == pytest.approx(live.expected(batch)[0], abs=1e-6)


def test_the_three_kinds_of_json(live: Live) -> None:
    batch = live.made.samples(live.schema, 20)
    expected = live.expected(batch)
    request = tensors(batch)
    request.fetch_var_names.append("prob")
    for names in (True, False):  # int64_data and int64Data, int64s as text
        text = json_format.MessageToDict(request, preserving_proto_field_name=names)
        answer = live.post("/GeneralModelService/inference", text)
        body = answer.json()
        assert answer.headers["X-Model-Version"] == "7"
        assert body["err_no"] == 0
        tensor = body["outputs"][0]["tensor"][0]
        assert np.abs(np.reshape(tensor["float_data"], (20, 2))[:, 1] - expected).max() <= 1e-6
    answer = live.post(
        "/GeneralModelService/inference", request.SerializeToString(), **{"Content-Type": "application/proto"}
    )
    response = message("general.Response")
    response.ParseFromString(answer.content)
    assert np.abs(np.reshape(response.outputs[0].tensor[0].float_data, (20, 2))[:, 1] - expected).max() <= 1e-6

    lists: dict[str, Any] = {}
    for number, name in enumerate(SPARSE):
        values, offsets = batch.slot(number)
        lists[name] = [[int(v) for v in values[offsets[i] : offsets[i + 1]]] for i in range(len(batch))]
    lists["dense_input"] = batch.dense.tolist()
    answer = live.post("/rec/prediction", {"key": list(lists), "value": [json.dumps(v) for v in lists.values()]})
    body = answer.json()
    assert (body["err_no"], body["err_msg"], body["key"], body["tensors"]) == (0, "", ["prob"], [])
    assert np.abs(np.array(json.loads(body["value"][0]))[:, 1] - expected).max() <= 1e-6
    answer = live.post("/rec/prediction", {"feed": [lists], "fetch": ["my_score"]})
    assert np.abs(np.array(answer.json()["result"]["my_score"])[:, 0] - expected).max() <= 1e-6


def test_content_in_base64(live: Live) -> None:
    instances, batch = single_valued(live, 2, seed=8)
    made = [
        {
            "name": name,
            "shape": [2, 1],
            "elem_type": 0,
            "tensor_content": base64.b64encode(
                struct.pack("<2q", *(protobuf.to_signed(ids[s]) for ids, _ in instances))
            ).decode(),
        }
        for s, name in enumerate(SPARSE)
    ]
    made.append({"name": "dense", "shape": [2, 4], "float_data": [v for _, d in instances for v in d]})
    answer = live.post("/GeneralModelService/inference", {"tensor": made, "fetch_var_names": ["p"]}).json()
    assert answer["outputs"][0]["tensor"][0]["float_data"] == pytest.approx(live.expected(batch).tolist(), abs=1e-6)


def test_which_model_answers(live: Live) -> None:
    instances, batch = single_valued(live, 2, seed=3)
    default, other = live.expected(batch), live.expected(batch, seed=9)
    assert np.abs(default - other).max() > 0.01
    body = {"feed": [{**{name: [[v[0][s]] for v in instances] for s, name in enumerate(SPARSE)},
                      "dense": [v[1] for v in instances]}], "fetch": ["p"]}  # fmt: skip
    for path, more, expected in [
        ("/rec/prediction", {}, default),
        ("/ctr/prediction", {}, default),
        ("/other/prediction", {}, other),
        ("/other/GeneralModelService/inference", {}, other),
        ("/rec/prediction", {"model": "other"}, other),
    ]:
        answer = live.post(path, body | more).json()
        assert np.array(answer["result"]["p"])[:, 0] == pytest.approx(expected, abs=1e-6)
    with BrpcPeer(live.port) as peer:
        reply = peer.call(CTR, ctr_request(instances), user_fields={"model": "other"})
        assert reply.parse("ctr.Response").predictions[0].prob1 == pytest.approx(other[0], abs=1e-6)
        assert peer.call(CTR, ctr_request(instances), user_fields={"model": "none"}).error_code == 1001
    answer = live.post("/nobody/prediction", body)
    assert answer.status_code == 404
    assert answer.json()["err_no"] == 1001


def test_errors_have_brpcs_codes(live: Live) -> None:
    instances, _ = single_valued(live, 1, seed=1)
    good = ctr_request(instances)
    short = ctr_request([(instances[0][0][:3], instances[0][1])])
    dense = ctr_request([(instances[0][0], instances[0][1] + [1.0])])
    with BrpcPeer(live.port) as peer:
        options: Any
        for body, options, code, words in [
            (good, {"service": "a.B"}, 1001, "no service 'a.B'"),
            (good, {"method": "train"}, 1002, "no method 'train'"),
            (b"\xff", {}, 1003, "Request"),
            (good, {"compress_type": 2}, 1003, "compress_type 2"),
            (good, {"attachment_size": 9999}, 1003, "attachment_size"),
            (short, {}, 1003, "instance 0 has 3 sparse_ids; the model has 5 sparse slots"),
            (dense, {}, 1003, "instance 0 has 5 dense_ids; the model has 4 dense values"),
            (ctr_request(instances * 301), {}, 1003, "more than 300 instances"),
            (ctr_request([(instances[0][0], [float("nan")] * 4)]), {}, 1003, "not a finite number"),
        ]:
            reply = peer.call(**{"service": CTR, "body": body, **options})
            assert (reply.error_code, reply.body) == (code, b""), words
            assert words in reply.error_text
        assert peer.call(CTR, good + b"junk", attachment_size=4).error_code == 0
        assert peer.call("CTRPredictionService", good).error_code == 0  # as clients without packages name it
    for body, status, words in [
        (b"{", 400, "not valid JSON"),
        (b'{"feed": [{"nobody": 1}]}', 400, "'nobody' is no slot of the model; it has user, tags"),
        (b'{"feed": [{"user": 1}]}', 400, "no tensor feeds slot 'tags'"),
    ]:
        answer = live.post("/rec/prediction", body)
        assert answer.status_code == status
        assert answer.json()["err_no"] == 1003
        assert words in answer.json()["err_msg"]
    many = {"feed": [{**dict.fromkeys(SPARSE, [[1]] * 301), "dense": [[0] * 4] * 301}]}
    assert live.post("/rec/prediction", many).status_code == 413


def test_many_calls_on_one_connection(live: Live) -> None:
    asked = {}
    with BrpcPeer(live.port) as peer:
        for seed in range(200):
            instances, batch = single_valued(live, 1 + seed % 3, seed)
            asked[peer.send(CTR, ctr_request(instances))] = live.expected(batch)
        for _ in range(200):
            reply = peer.receive()
            assert reply is not None
            scores = [p.prob1 for p in reply.parse("ctr.Response").predictions]
            assert scores == pytest.approx(asked.pop(reply.call_id), abs=1e-6)
    assert not asked


def test_many_connections_at_once(live: Live) -> None:
    def ask(seed: int) -> float:
        with BrpcPeer(live.port) as peer:
            worst = 0.0
            for i in range(20):
                instances, batch = single_valued(live, 2, 1000 * seed + i)
                response = peer.call(CTR, ctr_request(instances)).parse("ctr.Response")
                worst = max(worst, float(np.abs([p.prob1 for p in response.predictions] - live.expected(batch)).max()))
            return worst

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(ask, range(8))) <= 1e-6


def test_a_token(tmp_path: Path) -> None:
    made = Live(tmp_path, tokens=Tokens("secret", "reader"), workers=1)
    try:
        instances, _ = single_valued(made, 1, seed=1)
        for token in ("", "wrong"):
            with BrpcPeer(made.port) as peer:
                assert peer.call(CTR, ctr_request(instances), token=token).error_code == 1004
                assert peer.receive() is None
        with BrpcPeer(made.port) as peer:
            assert peer.call(CTR, ctr_request(instances), token="secret").error_code == 0
            assert peer.call(CTR, ctr_request(instances)).error_code == 0
        with BrpcPeer(made.port) as peer:
            assert peer.call(CTR, ctr_request(instances), token="reader").error_code == 0
        assert made.post("/rec/prediction", {}).status_code == 401
        assert made.post("/rec/prediction", {}, Authorization="Bearer reader").status_code == 400
        assert made.post("/rec/prediction", {}, Authorization="Bearer secret").status_code == 400
    finally:
        made.server.stop(1)


def test_hostile_bytes_cost_only_their_sender(live: Live) -> None:
    instances, batch = single_valued(live, 1, seed=1)
    good = frame(CTR, ctr_request(instances), 1)
    request = tensors(batch)
    seeds = [good + good, frame(GENERAL, request.SerializeToString(), 2)]
    chance = random.Random(3)
    stop = threading.Event()
    worst = [0.0]

    def keep_asking() -> None:
        with BrpcPeer(live.port) as peer:
            while not stop.is_set():
                response = peer.call(CTR, ctr_request(instances)).parse("ctr.Response")
                worst[0] = max(worst[0], abs(response.predictions[0].prob1 - float(live.expected(batch)[0])))

    asker = threading.Thread(target=keep_asking)
    asker.start()
    try:
        for _ in range(150):
            data = bytearray(chance.choice(seeds))
            for _ in range(chance.randint(1, 5)):
                at = chance.randrange(len(data))
                data[at : at + chance.randint(0, 3)] = bytes(chance.randrange(256) for _ in range(chance.randint(0, 4)))
            with BrpcPeer(live.port) as peer:
                peer.send_raw(bytes(data))
        for junk in (struct.pack(">4sII", b"PRPC", 2**32 - 1, 0), struct.pack(">4sII", b"PRPC", 1, 2), b"PRPCx" * 100):
            with BrpcPeer(live.port) as peer:
                peer.send_raw(junk)
                while (reply := peer.receive()) is not None:
                    assert reply.error_code == 1003
    finally:
        stop.set()
        asker.join(30)
    assert not asker.is_alive()
    assert worst[0] <= 1e-6
