"""Good and bad requests in every protocol, many on one connection, with every answer checked.

    mixed = Mixed(scored, version, port, grpc_port)
    mixed.run(20_000)          # raises where an answer is not what it must be

Good ones must get the version's scores, bad ones the right error, and no request may affect another.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np

from elasticctr.serve import protobuf
from tests.cluster.scored import Sample, Scored
from tests.unit.serve.brpc_peer import GENERAL, frame, message

_NUMBER = 127  # of a call until it is sent
TOGETHER = 24  # requests written at once on a connection
PREDICT, INFER, PADDLE = "/v1/models/ctr:predict", "/v2/models/ctr/infer", "/ctr/prediction"
# JSON requests for predictions that are refused with 400, by what is wrong with them.
BAD_JSON: dict[str, bytes] = {
    "empty": b"",
    "not JSON": b"\xff\xfe\x00junk" * 20,
    "bomb": b"[" * 2000,
    "object bomb": b'{"samples":' * 500,
    "no samples": b"{}",
    "empty list": b'{"samples": []}',
    "unknown slot": b'{"samples": [{"nobody": 1}]}',
    "wrong type": b'{"samples": [{"user": {"a": 1}}]}',
    "not a number": b'{"samples": [{"x": ["a", "b"]}]}',
    "too few floats": b'{"samples": [{"x": [1]}]}',
    "no feasign": b'{"samples": [{"ads": ["12x"]}]}',
    "2 to the 64th": b'{"samples": [{"ads": [18446744073709551616]}]}',
    "second sample bad": b'{"samples": [{"user": 1}, {"user": -1}]}',
    "huge number": b'{"samples": [{"x": [1e999, 0]}]}',
    "bad line": b'{"lines": ["user:1 x:nan x:0"], "format": "slot"}',
    "bad format": b'{"lines": ["user:1"], "format": "none"}',
    "not UTF-8": b'{"samples": [{"user": "\xff"}]}',
}
Judge = Callable[[int, bytes], None]
Answer = tuple[int | None, int, bytes]  # number of the call if it has one, HTTP's status, body


@dataclass(frozen=True)
class Exchange:
    name: str
    data: bytes
    judge: Judge
    number: int | None = None


class Mixed:
    def __init__(self, scored: Scored, version: int, port: int, grpc_port: int | None, seed: int = 0) -> None:
        self._scored, self._version = scored, version
        self._port, self._grpc_port = port, grpc_port
        draw = np.random.default_rng(seed)
        self._http: list[Exchange] = []
        self._brpc: list[Exchange] = []
        self._grpc: list[Exchange] = []
        for _ in range(12):
            samples = scored.draw(draw, int(draw.integers(1, 6)))
            self._add_good(samples)
        self._add_bad(samples)
        self.seen: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []

    def run(self, count: int, threads: int = 3) -> Counter[str]:
        """At least `count` exchanges; what they were."""
        workers = [threading.Thread(target=self._work, args=(i, count // threads + 1)) for i in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if self._errors:
            raise self._errors[0]
        return self.seen

    def volley(self, rounds: int, connections: int = 24) -> None:
        """Good and bad requests on many connections at the same moment, so that they share micro-batches."""
        pick = random.Random(0)
        sockets = [socket.create_connection(("127.0.0.1", self._port), timeout=30) for _ in range(connections)]
        files: list[BinaryIO] = [one.makefile("rb") for one in sockets]
        try:
            for _ in range(rounds):
                exchanges = pick.choices(self._http, k=connections)
                for one, exchange in zip(sockets, exchanges, strict=True):
                    one.sendall(exchange.data)
                for file, exchange in zip(files, exchanges, strict=True):
                    _, status, body = _read_http(file)
                    exchange.judge(status, body)
        finally:
            for file in files:
                file.close()
            for one in sockets:
                one.close()

    # What is sent

    def _add_good(self, samples: Sequence[Sample]) -> None:
        expected = self._scored.expected(self._version, samples)
        rows = [sample.json() for sample in samples]

        def judge(read: Callable[[bytes], Any]) -> Judge:
            def check(status: int, body: bytes) -> None:
                assert status == 200, (status, body[:200])
                scores = np.asarray(read(body), np.float64).ravel()
                assert scores.shape == expected.shape, body[:200]
                assert np.abs(scores - expected).max() < 2e-5, (scores, expected)

            return check

        def json_scores(body: bytes) -> Any:
            return json.loads(body)["scores"]

        def tensor(body: bytes) -> Any:
            return json.loads(body)["outputs"][0]["data"]

        lines = [f"user:{s.user} x:{s.x[0]!r} x:{s.x[1]!r} " + " ".join(f"ads:{ad}" for ad in s.ads) for s in samples]
        shared = {"user": {"user": rows[0]["user"], "ads": [5, 6]}, "candidates": rows}
        for name, entry in (
            ("json samples", {"samples": rows}),
            ("json feasigns", {"samples": rows, "values": "feasigns", "id": "x" * 40}),
            ("json candidates", shared),
            ("json lines", {"lines": lines, "format": "slot"}),
        ):
            self._http.append(Exchange(name, _post(PREDICT, json.dumps(entry).encode()), judge(json_scores)))
        self._http.append(Exchange("kserve", _post(INFER, json.dumps(_tensors(samples)).encode()), judge(tensor)))
        feed = {"feed": [_feeds(samples)], "fetch": ["score"]}
        self._http.append(Exchange("paddle", _post(PADDLE, json.dumps(feed).encode()), judge(_paddle_scores)))
        self._brpc.append(Exchange("brpc", _brpc_call(_brpc_message(samples)), judge(_brpc_scores)))
        self._grpc.append(Exchange("grpc", _grpc_message(samples), judge(_grpc_scores)))

    def _add_bad(self, samples: Sequence[Sample]) -> None:
        good = json.dumps({"samples": [sample.json() for sample in samples]}).encode()
        infer = json.dumps(_tensors(samples)).encode()

        def refused(*statuses: int) -> Judge:
            def check(status: int, body: bytes) -> None:
                assert status in statuses, (status, body[:200])
                assert body, "an error without a word"

            return check

        bad = refused(400)
        for name, body in {"half": good[: len(good) // 2], **BAD_JSON}.items():
            self._http.append(Exchange(f"bad json: {name}", _post(PREDICT, body), bad))
        for name, body in {
            "half": infer[: len(infer) // 2],
            "shape": infer.replace(b'"shape": [', b'"shape": [9, '),
            "type": infer.replace(b"UINT64", b"UINT65"),
            "no inputs": b'{"inputs": []}',
            "not JSON": b"\x00" * 64,
        }.items():
            self._http.append(Exchange(f"bad kserve: {name}", _post(INFER, body), bad))
        for name, body in {"half": b'{"feed": [', "nothing": b"{}", "names": b'{"feed": [{"z": [[1]]}]}'}.items():
            self._http.append(Exchange(f"bad paddle: {name}", _post(PADDLE, body), bad))
        self._http += [
            Exchange("no model", _post("/v1/models/nobody:predict", good), refused(404)),
            Exchange("no version", _post("/v1/models/ctr/versions/99:predict", good), refused(404)),
            Exchange("no path", _post("/v1/nothing", good), refused(404)),
            Exchange(
                "wrong method", b"DELETE /v1/models/ctr:predict HTTP/1.1\r\nHost: localhost\r\n\r\n", refused(404, 405)
            ),
        ]

        def brpc_refused(status: int, body: bytes) -> None:
            assert status != 200

        body = _brpc_message(samples)
        self._brpc += [
            Exchange("bad brpc: half", _brpc_call(body[: len(body) // 2]), brpc_refused),
            Exchange("bad brpc: junk", _brpc_call(b"\xff" * 100), brpc_refused),
            Exchange("bad brpc: service", _brpc_call(body, "no.Such.Service"), brpc_refused),
        ]
        self._grpc += [Exchange("bad grpc: junk", b"\xff" * 50, brpc_refused)]

    # How it is sent

    def _work(self, number: int, count: int) -> None:
        pick = random.Random(number)
        seen: Counter[str] = Counter()
        try:
            while sum(seen.values()) < count:
                kind = pick.random()
                if kind < 0.85:
                    seen += self._pipeline(pick.choices(self._http, k=TOGETHER), _read_http, 8, pick)
                elif kind < 0.97:
                    chosen = pick.choices(self._brpc, k=TOGETHER)
                    calls = [replace(one, number=i, data=_with_number(one.data, i)) for i, one in enumerate(chosen)]
                    seen += self._pipeline(calls, _read_brpc, 4, pick)
                elif kind < 0.98 and self._grpc_port is not None:
                    seen += self._call_grpc(pick.choices(self._grpc, k=4))
                else:
                    seen += self._cut(pick)
        except BaseException as e:
            self._errors.append(e)
        with self._lock:
            self.seen += seen

    def _pipeline(
        self, exchanges: list[Exchange], read: Callable[[Any], Answer], rounds: int, pick: random.Random
    ) -> Counter[str]:
        """One connection: all written at once; the same mixture some times over."""
        seen: Counter[str] = Counter()
        with socket.create_connection(("127.0.0.1", self._port), timeout=30) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = connection.makefile("rb")
            for _ in range(rounds):
                pick.shuffle(exchanges)
                numbered = {exchange.number: exchange for exchange in exchanges}
                connection.sendall(b"".join(exchange.data for exchange in exchanges))
                for turn in range(len(exchanges)):
                    number, status, body = read(file)
                    # bRPC's answers carry the number of their call and come in any order.
                    exchange = exchanges[turn] if number is None else numbered.pop(number)
                    try:
                        exchange.judge(status, body)
                    except AssertionError as e:
                        raise AssertionError(f"{exchange.name}: {e}") from None
                    seen[exchange.name] += 1
            file.close()
        return seen

    def _call_grpc(self, exchanges: list[Exchange]) -> Counter[str]:
        import grpc

        with grpc.insecure_channel(f"127.0.0.1:{self._grpc_port}") as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            for exchange in exchanges:
                try:
                    answer = infer(exchange.data, timeout=30)
                    exchange.judge(200, answer)
                except grpc.RpcError as e:
                    assert e.code() is grpc.StatusCode.INVALID_ARGUMENT, (exchange.name, e.code(), e.details())
                    exchange.judge(400, b"")
        return Counter(exchange.name for exchange in exchanges)

    def _cut(self, pick: random.Random) -> Counter[str]:
        """Requests that end a connection: the server may answer, must close it, and other connections go unharmed."""
        name, data = pick.choice(
            [
                ("cut: not HTTP", b"\x00\x01\x02\x03" * 50),
                ("cut: a head without end", b"POST / HTTP/1.1\r\n" + b"A: " + b"b" * 70_000),
                ("cut: a wrong length", b"POST /v1/models/ctr:predict HTTP/1.1\r\nContent-Length: x\r\n\r\n"),
                ("cut: a huge length", b"POST /v1/models/ctr:predict HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n"),
                ("cut: bRPC of 4 GB", b"PRPC" + b"\xff" * 8),
                ("cut: left half way", _post(PREDICT, b"{}" * 500)[:300]),
            ]
        )
        with socket.create_connection(("127.0.0.1", self._port), timeout=30) as connection:
            try:
                connection.sendall(data)
                if name == "cut: left half way":
                    return Counter({name: 1})
                while connection.recv(1 << 16):
                    pass
            except OSError:
                pass  # closed while we still wrote
        return Counter({name: 1})


def _post(path: str, body: bytes) -> bytes:
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body)


def _read_http(file: Any) -> Answer:
    line = file.readline()
    assert line.startswith(b"HTTP/1.1 "), line
    length = 0
    while (header := file.readline()) not in (b"\r\n", b""):
        name, _, value = header.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return None, int(line[9:12]), file.read(length)


def _read_brpc(file: Any) -> Answer:
    magic, body_bytes, meta_bytes = struct.unpack(">4sII", file.read(12))
    assert magic == b"PRPC"
    body = file.read(body_bytes)
    meta = message("rpc.RpcMeta")
    meta.ParseFromString(body[:meta_bytes])
    if meta.response.error_code:
        return meta.correlation_id, 400, meta.response.error_text.encode()
    return meta.correlation_id, 200, body[meta_bytes:]


def _feeds(samples: Sequence[Sample]) -> dict[str, Any]:
    return {
        "user": [[str(s.user)] for s in samples],
        "ads": [[str(ad) for ad in s.ads] for s in samples],
        "dense_input": [list(s.x) for s in samples],
    }


def _tensors(samples: Sequence[Sample]) -> dict[str, Any]:
    n, ads = len(samples), [ad for s in samples for ad in s.ads]
    return {
        "inputs": [
            {"name": "user", "datatype": "UINT64", "shape": [n, 1], "data": [s.user for s in samples]},
            {"name": "ads", "datatype": "UINT64", "shape": [len(ads)], "data": ads},
            {"name": "ads.lengths", "datatype": "INT32", "shape": [n], "data": [len(s.ads) for s in samples]},
            {"name": "x", "datatype": "FP32", "shape": [n, 2], "data": [v for s in samples for v in s.x]},
        ]
    }


def _paddle_scores(body: bytes) -> Any:
    answer = json.loads(body)
    return answer.get("result", answer)["score"]


def _brpc_message(samples: Sequence[Sample]) -> bytes:
    request = message("general.Request")
    request.fetch_var_names.append("score")
    for name, bags in (("user", [[s.user] for s in samples]), ("ads", [list(s.ads) for s in samples])):
        values = [protobuf.to_signed(v) for bag in bags for v in bag]
        lod = np.cumsum([0, *map(len, bags)]).tolist()
        request.tensor.add(name=name, int64_data=values, shape=(len(values), 1), lod=lod)
    floats = [v for s in samples for v in s.x]
    request.tensor.add(name="dense_input", elem_type=1, float_data=floats, shape=(len(samples), 2))
    return bytes(request.SerializeToString())


def _brpc_call(body: bytes, service: str = GENERAL) -> bytes:
    return frame(service, body, _NUMBER, user_fields={"model": "ctr"})


def _with_number(call: bytes, number: int) -> bytes:
    assert number < 128
    before, after = (protobuf.make("brpc.policy.RpcMeta", correlation_id=n) for n in (_NUMBER, number))
    return call.replace(before.SerializeToString(), after.SerializeToString(), 1)


def _brpc_scores(body: bytes) -> Any:
    response = message("general.Response")
    response.ParseFromString(body)
    return np.array(response.outputs[0].tensor[0].float_data, np.float32)


def _grpc_message(samples: Sequence[Sample]) -> bytes:
    request = protobuf.make("inference.ModelInferRequest", model_name="ctr")
    types = {"UINT64": "<u8", "INT32": "<i4", "FP32": "<f4"}
    for tensor in _tensors(samples)["inputs"]:
        request.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
        request.raw_input_contents.append(np.array(tensor["data"], types[tensor["datatype"]]).tobytes())
    return bytes(request.SerializeToString())


def _grpc_scores(body: bytes) -> Any:
    return np.frombuffer(protobuf.parse("inference.ModelInferResponse", body).raw_output_contents[0], "<f4")
