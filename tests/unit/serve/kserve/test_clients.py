"""KServe V2 with Triton's own clients, over HTTP and gRPC: served scores are those of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from numpy.typing import NDArray
from tests.cluster.certificate import make_certificate
from tests.unit.serve.making import Made, make_graph, make_schema
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from elasticctr.data.batch import Batch
from elasticctr.data.formats.parser import Parser
from elasticctr.errors import NotFound
from elasticctr.net.access import Tokens
from elasticctr.serve.activation.served_version import make_served_version
from elasticctr.serve.control import Control
from elasticctr.serve.kserve.grpc_server import GrpcOptions, GrpcServer
from elasticctr.serve.kserve.pages import KServePages
from elasticctr.serve.server import PredictServer, PredictServerOptions
from elasticctr.serve.settings import PolicySettings
from elasticctr.versions.serving_schema import ServingSchema

LABELS = ("click", "buy")
Tensors = dict[str, NDArray[Any]]
Parameters = dict[str, str | int | bool]


class OneModel:
    """A fleet of one model with one version."""

    def __init__(self, schema: ServingSchema, version: int) -> None:
        self._schema, self._version = schema, version

    def status(self) -> dict[str, Any]:
        return {"ready": True, "reason": None, "models": [{"name": "ctr", "live": self._version, "variants": []}]}

    def serving_schema(self, model: str, version: int | None = None) -> tuple[int, ServingSchema]:
        if model != "ctr" or version not in (None, self._version):
            raise NotFound(f"no model {model} {version}")
        return self._version, self._schema

    def metrics(self) -> str:
        return ""


@dataclass
class Answer:
    scores: NDArray[np.float32]
    version: str
    id: str
    parameters: dict[str, Any]


@dataclass
class Running:
    made: Made
    schema: ServingSchema
    server: PredictServer
    grpc_server: GrpcServer

    def expected(self, batch: Batch) -> NDArray[np.float32]:
        return self.made.expected(self.schema, make_graph(len(LABELS)), batch)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made, schema = Made(tmp_path_factory.mktemp("made")), make_schema(LABELS)
    native = make_served_version(
        "ctr", made.version, schema, make_graph(len(LABELS)), made.local(), PolicySettings(min_coverage=0.01), "graph"
    )
    fleet: Any = OneModel(schema, made.version)
    server = PredictServer(PredictServerOptions(port=0))
    server.use(Control(fleet, [KServePages(fleet, server.metrics)]))
    server.set_models([("ctr", "", 0, False, [("live", 1.0, False, native)])])
    server.set_ready(True)
    with server:
        grpc_server = GrpcServer(GrpcOptions(port=0), server.native, fleet)
        grpc_server.start()
        yield Running(made, schema, server, grpc_server)
        grpc_server.stop(0)


def infer_http(
    running: Running, tensors: Tensors, parameters: Parameters, is_binary: bool, compressed_by: str | None = None
) -> Answer:
    inputs = []
    for name, values in tensors.items():
        one = triton_http.InferInput(name, values.shape, np_to_triton_dtype(values.dtype))
        inputs.append(one.set_data_from_numpy(values, binary_data=is_binary))
    with triton_http.InferenceServerClient(f"127.0.0.1:{running.server.port}") as client:
        outputs = [triton_http.InferRequestedOutput("scores", binary_data=is_binary)]
        result = client.infer(
            "ctr",
            inputs,
            outputs=outputs,
            request_id="r1",
            parameters=parameters or None,
            request_compression_algorithm=compressed_by,
        )
    answer = result.get_response()
    return Answer(result.as_numpy("scores"), answer["model_version"], answer["id"], answer["parameters"])


def infer_grpc(running: Running, tensors: Tensors, parameters: Parameters) -> Answer:
    inputs = []
    for name, values in tensors.items():
        one = triton_grpc.InferInput(name, values.shape, np_to_triton_dtype(values.dtype))
        inputs.append(one.set_data_from_numpy(values))
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{running.grpc_server.port}") as client:
        result = client.infer("ctr", inputs, request_id="r1", parameters=parameters or None, client_timeout=60)
    return _answer(result.get_response())


def infer_typed(running: Running, tensors: Tensors, parameters: Parameters) -> Answer:
    """gRPC with elements in typed lists, as clients other than Triton's send them."""
    request = service_pb2.ModelInferRequest(model_name="ctr", id="r1")
    for key, value in parameters.items():
        kind = {str: "string_param", bool: "bool_param", int: "int64_param"}[type(value)]
        setattr(request.parameters[key], kind, value)
    lists = {
        "BYTES": "bytes_contents",
        "UINT64": "uint64_contents",
        "INT32": "int_contents",
        "FP32": "fp32_contents",
        "FP64": "fp64_contents",
    }
    for name, values in tensors.items():
        datatype = np_to_triton_dtype(values.dtype)
        one = request.inputs.add(name=name, datatype=datatype, shape=values.shape)
        elements = values.ravel().tolist()
        if datatype == "BYTES":
            elements = [value.encode() for value in elements]
        getattr(one.contents, lists[datatype]).extend(elements)
    with grpc.insecure_channel(f"127.0.0.1:{running.grpc_server.port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        return _answer(service_pb2.ModelInferResponse.FromString(call(request.SerializeToString(), timeout=60)))


def _answer(response: Any) -> Answer:
    (output,) = response.outputs
    assert (output.name, output.datatype) == ("scores", "FP32")
    scores = np.frombuffer(response.raw_output_contents[0], dtype=np.float32).reshape(output.shape)
    parameters = {key: getattr(one, one.WhichOneof("parameter_choice")) for key, one in response.parameters.items()}
    return Answer(scores, response.model_version, response.id, parameters)


WAYS: dict[str, Callable[[Running, Tensors, Parameters], Answer]] = {
    "http-json": partial(infer_http, is_binary=False),
    "http-binary": partial(infer_http, is_binary=True),
    "http-gzip": partial(infer_http, is_binary=True, compressed_by="gzip"),
    "grpc-raw": infer_grpc,
    "grpc-typed": infer_typed,
}


@pytest.fixture(params=WAYS)
def infer(request: pytest.FixtureRequest, running: Running) -> Callable[[Tensors, Parameters], Answer]:
    return lambda tensors, parameters: WAYS[request.param](running, tensors, parameters)


Infer = Callable[[Tensors, Parameters], Answer]


def by_slot(schema: ServingSchema, batch: Batch) -> Tensors:
    """Every slot as values and lengths; dense ones as they are."""
    tensors: Tensors = {}
    for number, slot in enumerate(schema.samples.sparse):
        values, offsets = batch.slot(number)
        tensors[slot.name] = np.ascontiguousarray(values)
        tensors[f"{slot.name}.lengths"] = np.diff(offsets).astype(np.int32)
    column = 0
    for dense in schema.samples.dense:
        tensors[dense.name] = np.ascontiguousarray(batch.dense[:, column : column + dense.dim], dtype=np.float32)
        column += dense.dim
    return tensors


def differ(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    assert a.shape == b.shape
    return float(np.abs(a - b).max())


def test_feasigns_by_slot(running: Running, infer: Infer) -> None:
    batch = running.made.samples(running.schema, 120)
    answer = infer(by_slot(running.schema, batch), {"values": "feasigns"})
    assert differ(answer.scores, running.expected(batch)) <= 1e-6
    assert np.std(answer.scores) > 0.1
    assert (answer.version, answer.id) == ("7", "r1")
    asked = sum(len(batch.slot(number)[0]) for number in (0, 1, 3, 4))
    assert answer.parameters["coverage_asked"] == asked
    assert 0 < answer.parameters["coverage_found"] < asked
    assert answer.parameters["variant"] == "live"
    assert answer.parameters["degraded"] is False
    assert answer.parameters["labels"] == "click,buy"


def test_packed(running: Running, infer: Infer) -> None:
    batch = running.made.samples(running.schema, 50)
    slots = [batch.slot(number) for number in range(len(running.schema.samples.sparse))]
    bags = [values[offsets[i] : offsets[i + 1]] for i in range(50) for values, offsets in slots]
    tensors: Tensors = {
        "feasigns": np.concatenate(bags),
        "feasigns.lengths": np.array([len(bag) for bag in bags], dtype=np.int32).reshape(50, -1),
        "dense": np.ascontiguousarray(batch.dense, dtype=np.float32),
    }
    assert differ(infer(tensors, {}).scores, running.expected(batch)) <= 1e-6


def test_values_as_they_stand_in_the_log(running: Running, infer: Infer) -> None:
    random = np.random.default_rng(4)
    n, known = 40, running.made.feasigns
    users = [f"u{random.integers(9)}" for _ in range(n)]
    ads = random.choice(known, n)
    tags = random.choice(known, (n, 2))
    x, counts, prices = random.normal(size=(n, 2)), random.integers(-3, 90, n), random.normal(size=n)
    lines = [
        f"user:{users[i]} ad:{ads[i]} tags:{tags[i, 0]} tags:{tags[i, 1]} count:{counts[i]} price:{float(prices[i])} "
        f"x:{float(x[i, 0])} x:{float(x[i, 1])}"
        for i in range(n)
    ]
    expected = running.expected(
        Parser(running.schema.samples, require_label=False).parse("\n".join(lines).encode()).batch
    )
    tensors: Tensors = {
        "user": np.array(users, dtype=object),
        "ad": ads,
        "tags": tags,
        "x": x,
        "count": counts.astype(np.int32),
        "price": prices.reshape(n, 1),
    }
    assert differ(infer(tensors, {}).scores, expected) <= 1e-6
    whole = infer({"lines": np.array(lines, dtype=object)}, {"format": "slot"})
    assert differ(whole.scores, expected) <= 1e-6


def test_what_belongs_to_the_user_is_sent_and_looked_up_once(running: Running, infer: Infer) -> None:
    known = running.made.feasigns
    user: Tensors = {
        "user": np.array(["anna"], dtype=object),
        "tags": known[:3].reshape(1, 3),
        "count": np.array([5], np.float32),
    }
    ads = {"ad": known[10:60]}
    once = infer({**user, **ads}, {})
    repeated = infer({**{name: np.repeat(values, 50, axis=0) for name, values in user.items()}, **ads}, {})
    assert once.scores.shape == (50, 2)
    assert once.scores.tobytes() == repeated.scores.tobytes()
    assert once.parameters["coverage_asked"] == 4 + 50
    assert repeated.parameters["coverage_asked"] == 50 * 5


@pytest.mark.parametrize(
    ("tensors", "parameters", "reason"),
    [
        ({"nobody": np.array([1], np.uint64)}, {}, "no such slot"),
        ({"ad": np.array([1], np.float32)}, {}, "takes UINT64"),
        ({"ad": np.array([1, 2], np.uint64), "tags": np.array([1, 2, 3], np.uint64)}, {}, "samples"),
        ({"x": np.array([[1, 2, 3]], np.float32)}, {}, "2 values per sample"),
        ({"ad": np.array([1], np.uint64)}, {"values": "hashes"}, "'raw' or 'feasigns'"),
        ({"lines": np.array(["ad:x"], dtype=object)}, {}, "line 1"),
    ],
)
def test_bad_requests_say_what_is_wrong(infer: Infer, tensors: Tensors, parameters: Parameters, reason: str) -> None:
    with pytest.raises((InferenceServerException, grpc.RpcError)) as refused:
        infer(tensors, parameters)
    error = refused.value
    if isinstance(error, InferenceServerException):
        assert reason in error.message()
        assert error.status() in ("400", "StatusCode.INVALID_ARGUMENT")
    else:
        assert (error.code(), reason in error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def clients(running: Running) -> Iterator[Any]:
    with triton_http.InferenceServerClient(f"127.0.0.1:{running.server.port}") as client:
        yield client
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{running.grpc_server.port}") as client:
        yield client


def test_metadata_health_and_index(running: Running) -> None:
    for client in clients(running):
        as_json = {"as_json": True} if "grpc" in type(client).__module__ else {}
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("ctr")
        assert client.is_model_ready("ctr", "7")
        assert not client.is_model_ready("ctr", "8")
        assert client.get_server_metadata(**as_json)["name"] == "elasticctr"
        metadata = client.get_model_metadata("ctr", **as_json)
        assert [one["name"] for one in metadata["inputs"]] == [slot.name for slot in running.schema.samples.slots]
        assert [int(size) for size in metadata["outputs"][0]["shape"]] == [-1, 2]
        with pytest.raises(InferenceServerException):
            client.get_model_metadata("nobody")
        config = client.get_model_config("ctr", **as_json)
        assert config.get("config", config)["backend"] == "elasticctr"
        index = client.get_model_repository_index(**as_json)
        assert (index["models"] if as_json else index)[0]["state"] == "READY"
        stats = client.get_inference_statistics("ctr", **as_json)["model_stats"]
        assert stats == [] or stats[0]["version"] == "7"


def test_only_the_version_asked_for_answers(running: Running) -> None:
    ad = running.made.feasigns[:2]
    for client, module in zip(clients(running), (triton_http, triton_grpc), strict=True):
        inputs = [module.InferInput("ad", [2], "UINT64").set_data_from_numpy(ad)]
        assert client.infer("ctr", inputs, model_version="7").as_numpy("scores").shape == (2, 2)
        for model, version in (("ctr", "8"), ("nobody", "")):
            with pytest.raises(InferenceServerException) as missing:
                client.infer(model, inputs, model_version=version)
            assert missing.value.status() in ("404", "StatusCode.NOT_FOUND")


def test_hostile_bytes_leave_the_server_well(running: Running) -> None:
    random = np.random.default_rng(1)
    request = service_pb2.ModelInferRequest(model_name="ctr", raw_input_contents=[b"\x01" * 8])
    request.inputs.add(name="ad", datatype="UINT64", shape=[1])
    good = request.SerializeToString()
    with (
        grpc.insecure_channel(f"127.0.0.1:{running.grpc_server.port}") as channel,
        httpx.Client(base_url=f"http://127.0.0.1:{running.server.port}/v2", timeout=60) as http,
    ):
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(60):
            body = bytearray(good)
            for at in random.integers(0, len(body), 3):
                body[at] = random.integers(256)
            try:
                call(bytes(body), timeout=60)
            except grpc.RpcError as e:
                assert e.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), e.details()
            head = {"Inference-Header-Content-Length": str(random.integers(0, 200))}
            answer = http.post("/models/ctr/infer", content=bytes(body), headers=head)
            assert answer.status_code == 400 and isinstance(answer.json()["error"], str)
        assert call(good, timeout=60)


def test_token_and_tls(running: Running, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    with PredictServer(PredictServerOptions(port=0, tokens=Tokens("secret"))) as server:
        options = GrpcOptions(port=0, tls_cert=cert, tls_key=key)
        grpc_server = GrpcServer(options, server.native, OneModel(running.schema, 7))
        grpc_server.start()
        url = f"127.0.0.1:{grpc_server.port}"
        with triton_grpc.InferenceServerClient(url, ssl=True, root_certificates=str(cert)) as client:
            assert client.is_model_ready("ctr", headers={"authorization": "Bearer secret"})
            with pytest.raises(InferenceServerException) as refused:
                client.is_model_ready("ctr")
            assert refused.value.status() == "StatusCode.UNAUTHENTICATED"
        grpc_server.stop(0)
        answer = httpx.post(f"http://127.0.0.1:{server.port}/v2/models/ctr/infer", content=b"{}", timeout=60)
        assert (answer.status_code, "error" in answer.json()) == (401, True)
        assert isinstance(answer.json()["error"], str)
