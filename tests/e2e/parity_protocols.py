"""Every way to get scores from a prediction server. Each takes a case and a server's address and returns
one score per sample of the case's log, in order."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticctr.data.batch import Batch
from elasticctr.data.schema import Format
from elasticctr.serve.client import PredictClient
from tests.e2e.parity_cases import FORMATS, TEXT, Case
from tests.unit.serve.brpc_peer import BrpcPeer, ctr_request, message

BATCH = 500
FEW = 100  # samples that are sent one by one
Scores = NDArray[np.float32]


class Servers:
    """Where a server listens."""

    def __init__(self, host: str, port: int, grpc_port: int) -> None:
        self.host, self.port, self.grpc_port = host, port, grpc_port
        self.url = f"http://{host}:{port}"
        self.client = PredictClient(self.url, timeout_s=60, connect_s=60)

    def post(self, path: str, body: Any) -> Any:
        data = json.dumps(body).encode()
        head = {"Content-Type": "application/json"}
        call = urllib.request.Request(self.url + path, data, head)
        with urllib.request.urlopen(call, timeout=60) as answer:
            return json.load(answer)


def samples_of(batch: Batch) -> list[dict[str, Any]]:
    """Feasigns, and dense floats after their transforms, by slot; a slot without values is there too."""
    samples: list[dict[str, Any]] = [{} for _ in range(len(batch))]
    for number, slot in enumerate(batch.schema.sparse):
        values, offsets = batch.slot(number)
        for i, sample in enumerate(samples):
            sample[slot.name] = values[offsets[i] : offsets[i + 1]].tolist()
    column = 0
    for dense in batch.schema.dense:
        for i, sample in enumerate(samples):
            sample[dense.name] = batch.dense[i, column : column + dense.dim].astype(np.float64).tolist()
        column += dense.dim
    return samples


def json_lines(case: Case, servers: Servers) -> Scores:
    lines = case.lines()
    parts = [
        servers.client.predict(lines=lines[i : i + BATCH], format=case.name, model=case.name).scores
        for i in range(0, len(lines), BATCH)
    ]
    return np.concatenate(parts)


def json_samples(case: Case, servers: Servers) -> Scores:
    samples = case.raw_samples()
    parts = [
        servers.client.predict(samples[i : i + BATCH], model=case.name).scores for i in range(0, len(samples), BATCH)
    ]
    return np.concatenate(parts)


def json_feasigns(case: Case, servers: Servers) -> Scores:
    def score(batch: Batch) -> Scores:
        return servers.client.predict(samples_of(batch), values="feasigns", model=case.name).scores

    return np.concatenate([score(batch) for batch in case.batches(BATCH)])


def json_candidates(case: Case, servers: Servers) -> Scores:
    """User slots once: those of the first sample, which the others replace where they differ."""

    def score(batch: Batch) -> Scores:
        samples = samples_of(batch)
        user = samples[0]
        candidates = [{k: v for k, v in sample.items() if v != user[k]} for sample in samples]
        return servers.client.predict(user=user, candidates=candidates, values="feasigns", model=case.name).scores

    return np.concatenate([score(batch) for batch in case.batches(BATCH)])


def _kserve_inputs(batch: Batch, make: Callable[[str, NDArray[Any], str], Any]) -> list[Any]:
    inputs = []
    for number, slot in enumerate(batch.schema.sparse):
        values, offsets = batch.slot(number)
        inputs.append(make(slot.name, values, "UINT64"))
        inputs.append(make(f"{slot.name}.lengths", np.diff(offsets).astype(np.int32), "INT32"))
    if batch.schema.dense:
        inputs.append(make("dense", np.ascontiguousarray(batch.dense), "FP32"))
    return inputs


def _kserve_http(case: Case, servers: Servers, binary: bool) -> Scores:
    import tritonclient.http as triton

    def make(name: str, array: NDArray[Any], kind: str) -> Any:
        tensor = triton.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array, binary_data=binary)
        return tensor

    outputs = [triton.InferRequestedOutput("scores", binary_data=binary)]
    with triton.InferenceServerClient(f"{servers.host}:{servers.port}", network_timeout=60.0) as client:
        parts = [
            client.infer(
                case.name, _kserve_inputs(batch, make), outputs=outputs, parameters={"values": "feasigns"}
            ).as_numpy("scores")
            for batch in case.batches(BATCH)
        ]
    return np.concatenate(parts).reshape(-1)


def kserve_json(case: Case, servers: Servers) -> Scores:
    return _kserve_http(case, servers, binary=False)


def kserve_binary(case: Case, servers: Servers) -> Scores:
    return _kserve_http(case, servers, binary=True)


def kserve_grpc(case: Case, servers: Servers) -> Scores:
    import tritonclient.grpc as triton

    def make(name: str, array: NDArray[Any], kind: str) -> Any:
        tensor = triton.InferInput(name, list(array.shape), kind)
        tensor.set_data_from_numpy(array)
        return tensor

    with triton.InferenceServerClient(f"{servers.host}:{servers.grpc_port}") as client:
        parts = [
            client.infer(
                case.name, _kserve_inputs(batch, make), parameters={"values": "feasigns"}, client_timeout=60
            ).as_numpy("scores")
            for batch in case.batches(BATCH)
        ]
    return np.concatenate(parts).reshape(-1)


def kserve_lines(case: Case, servers: Servers) -> Scores:
    lines = case.lines()
    parts = []
    for i in range(0, len(lines), BATCH):
        data = lines[i : i + BATCH]
        tensor = {"name": "lines", "datatype": "BYTES", "shape": [len(data)], "data": data}
        body = {"inputs": [tensor], "parameters": {"format": case.name}}
        got = servers.post(f"/v2/models/{case.name}/infer", body)
        parts.append(np.array(got["outputs"][0]["data"], dtype=np.float32))
    return np.concatenate(parts)


def paddle_http(case: Case, servers: Servers) -> Scores:
    def score(batch: Batch) -> Scores:
        n = len(batch)
        tensors: list[dict[str, Any]] = []
        for number, slot in enumerate(batch.schema.sparse):
            values, offsets = batch.slot(number)
            tensor = {"name": slot.name, "int64_data": values.view(np.int64).tolist(), "shape": [len(values), 1]}
            tensors.append(tensor | {"lod": offsets.tolist()})
        if batch.schema.dense:
            dense = batch.dense.astype(np.float64).ravel().tolist()
            tensors.append({"name": "dense_input", "float_data": dense, "shape": [n, batch.dense.shape[1]]})
        got = servers.post(
            f"/{case.name}/GeneralModelService/inference", {"tensor": tensors, "fetch_var_names": ["score"]}
        )
        (output,) = got["outputs"]
        return np.array(output["tensor"][0]["float_data"], dtype=np.float32)

    return np.concatenate([score(batch) for batch in case.batches(BATCH)])


def paddle_feed(case: Case, servers: Servers) -> Scores:
    """Web services: rows of equal length, so samples of a request have as many values in a slot; one at a time here."""

    def score(batch: Batch) -> list[float]:
        scores = []
        for sample in samples_of(batch):
            feed = {slot.name: [sample[slot.name]] for slot in batch.schema.sparse}
            if batch.schema.dense:
                feed["dense_input"] = [[v for slot in batch.schema.dense for v in sample[slot.name]]]
            got = servers.post(f"/{case.name}/prediction", {"feed": [feed], "fetch": ["prob"]})
            scores.append(got["result"]["prob"][0][1])
        return scores

    batch = next(case.batches(FEW))
    return np.array(score(batch), dtype=np.float32)


def brpc_general(case: Case, servers: Servers) -> Scores:
    service = "baidu.paddle_serving.predictor.general_model.GeneralModelService"

    def score(batch: Batch) -> Scores:
        request = message("general.Request")
        request.fetch_var_names.append("score")
        for number, slot in enumerate(batch.schema.sparse):
            values, offsets = batch.slot(number)
            tensor = request.tensor.add(name=slot.name, shape=(len(values), 1), lod=offsets.tolist())
            tensor.int64_data.extend(values.view(np.int64).tolist())
        if batch.schema.dense:
            shape = batch.dense.shape
            request.tensor.add(name="dense_input", elem_type=1, shape=shape, float_data=batch.dense.ravel().tolist())
        answer = message("general.Response")
        answer.ParseFromString(connection.call(service, case.name, request.SerializeToString()))
        return np.array(answer.outputs[0].tensor[0].float_data, dtype=np.float32)

    with Brpc(servers) as connection:
        return np.concatenate([score(batch) for batch in case.batches(BATCH)])


def brpc_ctr(case: Case, servers: Servers) -> Scores:
    """One id per slot, so only for logs that have no more; 0 where there is none."""
    service = "baidu.paddle_serving.predictor.ctr_prediction.CTRPredictionService"

    def score(batch: Batch) -> Scores:
        samples = [[(sample[slot.name] or [0])[0] for slot in batch.schema.sparse] for sample in samples_of(batch)]
        request = ctr_request(list(zip(samples, batch.dense.tolist(), strict=True)))
        answer = message("ctr.Response")
        answer.ParseFromString(connection.call(service, case.name, request))
        return np.array([one.prob1 for one in answer.predictions], dtype=np.float32)

    with Brpc(servers) as connection:
        return np.concatenate([score(batch) for batch in case.batches(BATCH)])


class Brpc:
    """A connection that speaks baidu_std."""

    def __init__(self, servers: Servers) -> None:
        self._peer = BrpcPeer(servers.port, timeout_s=60)

    def __enter__(self) -> Brpc:
        return self

    def __exit__(self, *_: object) -> None:
        self._peer.__exit__(None, None, None)

    def call(self, service: str, model: str, body: bytes) -> bytes:
        reply = self._peer.call(service, body, user_fields={"model": model})
        assert reply.error_code == 0, reply
        return reply.body


SINGLE = (Format.CRITEO, Format.LIBFFM)  # logs with one value per slot at most
RAW = (Format.CRITEO, Format.CSV, Format.PARQUET)
PROTOCOLS: dict[Callable[[Case, Servers], Scores], tuple[Format, ...]] = {
    json_lines: TEXT,
    json_samples: RAW,
    json_feasigns: FORMATS,
    json_candidates: FORMATS,
    kserve_json: FORMATS,
    kserve_binary: FORMATS,
    kserve_grpc: FORMATS,
    kserve_lines: TEXT,
    paddle_http: FORMATS,
    paddle_feed: FORMATS,
    brpc_general: FORMATS,
    brpc_ctr: SINGLE,
}


def difference(case: Case, servers: Servers, protocol: Callable[[Case, Servers], Scores]) -> tuple[float, int]:
    """The largest difference between a score served and the trainer's, and of how many samples."""
    served = protocol(case, servers)
    assert len(served) == min(FEW if protocol is paddle_feed else len(case.scores), len(case.scores))
    return float(np.abs(served - case.scores[: len(served)]).max()), len(served)
