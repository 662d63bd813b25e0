"""Predictions over HTTP: the scores of versions/scoring.py, for every way to write a sample, and every refusal."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.unit.serve.live import Live, live_server

from elasticctr.data.batch import Batch
from elasticctr.data.formats.parser import Parser
from elasticctr.errors import Unavailable
from elasticctr.serve.server import PredictServer, PredictServerOptions


def as_samples(live: Live, batch: Batch, text: bool) -> list[dict[str, Any]]:
    """Feasigns by slot name, as numbers or as text, one value alone or in a list."""
    sparse, n = live.schema.samples.sparse, len(batch)
    samples: list[dict[str, Any]] = []
    for i in range(n):
        sample: dict[str, Any] = {}
        for s, slot in enumerate(sparse):
            first, last = batch.offsets[s * n + i], batch.offsets[s * n + i + 1]
            values = [str(v) if text else int(v) for v in batch.values[first:last]]
            sample[slot.name] = values[0] if len(values) == 1 else values
        at = 0
        for dense in live.schema.samples.dense:
            floats = [float(v) for v in batch.dense[i, at : at + dense.dim]]
            sample[dense.name] = floats if dense.dim > 1 else floats[0]
            at += dense.dim
        samples.append(sample)
    return samples


@pytest.mark.parametrize("text", [False, True])
def test_feasigns_give_the_scores_of_the_reference(live: Live, text: bool) -> None:
    batch = live.made.samples(live.schema, 40)
    answer = live.post({"values": "feasigns", "samples": as_samples(live, batch, text)}).json()
    assert answer["scores"] == pytest.approx(live.expected(batch), abs=1e-6)
    assert (answer["model"], answer["version"], answer["variant"]) == ("ctr", 7, "live")
    assert 0 < answer["coverage"]["found"] < answer["coverage"]["asked"]
    assert answer["coverage"]["degraded"] is False


def test_candidates_of_a_user_score_like_whole_samples(live: Live) -> None:
    batch = live.made.samples(live.schema, 30)
    samples = as_samples(live, batch, False)
    user = {name: samples[0][name] for name in ("user", "tags", "x")}
    candidates = [{k: v for k, v in sample.items() if k not in user} for sample in samples]
    whole = [{**candidate, **user} for candidate in candidates]
    together = live.post({"values": "feasigns", "user": user, "candidates": candidates}).json()
    apart = live.post({"values": "feasigns", "samples": whole}).json()
    assert together["scores"] == pytest.approx(apart["scores"], abs=1e-6)
    assert together["coverage"]["asked"] < apart["coverage"]["asked"]


def test_log_values_and_lines_score_like_the_trainers_parser(live: Live) -> None:
    lines = [
        "click:1 user:anna tags:17 tags:18446744073709551615 ad:5 x:0.5 x:-1.25 count:3 price:2.5",
        "click:0 user:bert clicked:1 clicked:2 clicked:3 clicked:4 x:1 x:2 count:0 price:1",
    ]
    samples = [
        {"user": "anna", "tags": [17, "18446744073709551615"], "ad": 5, "x": [0.5, -1.25], "count": 3, "price": 2.5},
        {"user": "bert", "clicked": [1, 2, 3, 4], "x": [1, 2], "count": 0, "price": 1},
    ]
    expected = live.expected(Parser(live.schema.samples).parse("\n".join(lines).encode() + b"\n").batch)
    assert live.post({"samples": samples}).json()["scores"] == pytest.approx(expected, abs=1e-6)
    assert live.post({"lines": lines}).json()["scores"] == pytest.approx(expected, abs=1e-6)
    named = live.post({"lines": lines, "format": "slot", "ignore_unknown": True}, "/v1/models/ctr/versions/7:predict")
    assert named.json()["scores"] == pytest.approx(expected, abs=1e-6)


def test_scores_are_read_back_as_the_same_floats(live: Live) -> None:
    answer = live.post({"samples": [{"user": f"u{i}", "x": [i, -i]} for i in range(100)]})
    texts = answer.text.split('"scores":[')[1].split("]")[0].split(",")
    for text in texts:
        # No longer than NumPy's shortest text of that float, but for how the exponent is written.
        assert len(text) <= len(np.format_float_scientific(np.float32(text), unique=True, trim="-")) + 4
    assert [np.float32(text) for text in texts] == answer.json()["scores"] or len(texts) == 100


def test_several_labels_are_named(tmp_path: Path) -> None:
    with live_server(tmp_path, ("click", "buy")) as live:
        batch = live.made.samples(live.schema, 5)
        answer = live.post({"values": "feasigns", "samples": as_samples(live, batch, False)}).json()
        assert answer["labels"] == ["click", "buy"]
        assert np.allclose(answer["scores"], live.expected(batch), atol=1e-6)


def test_ids_are_echoed_or_made(live: Live) -> None:
    sample: dict[str, Any] = {"samples": [{}]}
    assert live.post({**sample, "id": "mine"}, X_Request_Id="other").json()["id"] == "mine"
    assert live.post({**sample, "id": 12}).json()["id"] == "12"
    assert live.post(sample, X_Request_Id="other").json()["id"] == "other"
    made = {live.post(sample).json()["id"] for _ in range(3)}
    assert len(made) == 3 and all(len(one) == 16 for one in made)


@pytest.mark.parametrize(
    ("status", "code", "words", "body"),
    [
        (400, "DataError", "nobody", {"samples": [{"nobody": 1}]}),
        (400, "DataError", "twice", b'{"samples": [{"ad": 1, "ad": 2}]}'),
        (400, "DataError", "twice", b'{"samples": [{}], "samples": [{}]}'),
        (400, "DataError", "expected a value", b'{"samples": [{"count": NaN}]}'),
        (400, "DataError", "line 2", {"lines": ["click:0 ad:1", "click:0 ad:x"]}),
        (400, "DataError", "one of", {}),
        (400, "DataError", "", b"\xff\xfe"),
        (413, "DataError", "300", {"samples": [{}] * 301}),
        (413, "DataError", "3000", {"samples": [{"user": ["a"] * 3001}]}),
        (413, "DataError", "1048576", b" " * (1 << 20) + b"{}"),
    ],
)
def test_bad_requests_say_what_is_wrong(live: Live, status: int, code: str, words: str, body: Any) -> None:
    answer = live.post(body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(answer.json()) == {"error"} and error["code"] == code and words in error["message"]


def test_other_refusals(live: Live) -> None:
    assert live.post({"samples": [{}]}, "/v1/models/nobody:predict").status_code == 404
    assert live.post({"samples": [{}]}, "/v1/models/ctr/versions/8:predict").status_code == 404
    refused = live.post({"samples": [{}]}, Content_Encoding="br")
    assert refused.status_code == 415 and refused.headers["accept-encoding"] == "gzip"
    assert live.post(gzip.compress(b"{}"), "/v1/models/ctr:pause", Content_Encoding="gzip").status_code == 415
    assert live.post({"samples": [{}]}, X_Timeout_Ms="soon").status_code == 400
    refused = live.get("/v1/models/ctr:predict")
    assert refused.status_code == 405 and refused.headers["allow"] == "POST"
    assert live.get("/nobody").json()["error"]["code"] == "NotFound"
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert live.client.request(method, "/v1/status").status_code == 405, method


def test_bodies_may_be_gzip(live: Live) -> None:
    body = json.dumps({"samples": [{"ad": i} for i in range(300)]}).encode()
    plain = live.post(body).json()["scores"]
    kinds = [(level, strategy) for level in (0, 1, 6, 9) for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED)]
    for level, strategy in [*kinds, (6, zlib.Z_HUFFMAN_ONLY), (6, zlib.Z_RLE)]:
        made = zlib.compressobj(level, wbits=31, strategy=strategy)
        packed = made.compress(body) + made.flush()
        assert live.post(packed, Content_Encoding="gzip").json()["scores"] == plain
    assert live.post(gzip.compress(body), Content_Encoding="GZip").json()["scores"] == plain


def test_bad_gzip_and_bombs_are_refused(live: Live) -> None:
    good = gzip.compress(b'{"samples": [{}]}')
    damaged = [b"", b"{}", good[:-1], good + b"{}", good[:-8] + bytes(8), good[:12] + b"\xff" + good[13:]]
    for body in damaged:
        answer = live.post(body, Content_Encoding="gzip")
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "DataError", body
    bomb = gzip.compress(bytes(64 << 20))
    answer = live.post(bomb, Content_Encoding="gzip")
    assert answer.status_code == 413 and "decompressed" in answer.json()["error"]["message"]
    for said in (0, 1000, 1 << 20):
        lie = bomb[:-4] + said.to_bytes(4, "little")
        assert live.post(lie, Content_Encoding="gzip").status_code == 413
        lie = good[:-4] + said.to_bytes(4, "little")
        assert live.post(lie, Content_Encoding="gzip").status_code == 400
    live.still_answers()


def test_gzip_of_several_members(live: Live) -> None:
    body = json.dumps({"samples": [{"ad": i} for i in range(300)]}).encode()
    packed = gzip.compress(body[:100]) + gzip.compress(b"") + gzip.compress(body[100:])
    assert live.post(packed, Content_Encoding="gzip").json()["scores"] == live.post(body).json()["scores"]


@pytest.mark.promise("a plain body sent as gzip", "400 that says so, whatever its last bytes look like")
def test_a_plain_body_sent_as_gzip(live: Live) -> None:
    answer = live.post(json.dumps({"samples": [{}] * 100}).encode(), Content_Encoding="gzip")
    assert answer.status_code == 400 and "is not gzip" in answer.json()["error"]["message"]
    live.still_answers()


@pytest.mark.promise("gzip body of empty blocks (CPU bomb)", "400 within milliseconds of work; others are answered")
def test_a_gzip_bomb_of_nothing(live: Live) -> None:
    empty = int("0000000010" * 4, 2).to_bytes(5, "little")  # four blocks without a byte, by the fixed code
    bomb = gzip.compress(b"")[:10] + empty * 200_000 + bytes(8)
    used_s = time.process_time()
    answer = live.post(bomb, Content_Encoding="gzip")
    assert answer.status_code == 400 and "empty blocks" in answer.json()["error"]["message"]
    assert time.process_time() - used_s < 1  # the server is in this process; its workers took over 3 s for it
    live.still_answers()


def test_a_deadline_that_passed_is_504(tmp_path: Path) -> None:
    with live_server(tmp_path, workers=1, batch_wait_us=200_000) as live:
        # The first one makes the only worker wait for company until the second one's time is up.
        first = threading.Thread(target=lambda: live.post({"samples": [{}]}))
        first.start()
        answer = live.post({"samples": [{}], "timeout_ms": 1})
        first.join()
        assert answer.status_code in (200, 429, 504)
        answers = [live.post({"samples": [{}]}, X_Timeout_Ms="1").status_code for _ in range(5)]
        assert set(answers) <= {200, 504}


def test_health_readiness_and_heads(live: Live) -> None:
    assert live.get("/healthz").json() == {"alive": True}
    assert live.get("/readyz").json() == {"ready": True}
    head = live.client.head("/v1/status")
    assert head.status_code == 200 and head.content == b"" and int(head.headers["content-length"]) > 10
    live.server.set_ready(False, "ctr: loading")
    try:
        refused = live.get("/readyz")
        assert refused.status_code == 503 and "ctr: loading" in refused.json()["error"]["message"]
        assert refused.headers["retry-after"] == "1"
    finally:
        live.server.set_ready(True)


def test_a_taken_port_is_said(live: Live) -> None:
    with pytest.raises(Unavailable, match=str(live.server.port)):
        PredictServer(PredictServerOptions(port=live.server.port))


def test_pipelined_requests_are_answered_in_order(live: Live) -> None:
    def request(i: int) -> bytes:
        body = json.dumps({"samples": [{"user": str(i)}], "id": str(i)}).encode()
        return b"POST /v1/models/ctr:predict HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    status = b"GET /v1/status HTTP/1.1\r\n\r\n"
    with socket.create_connection(live.address) as peer:
        peer.sendall(b"".join(request(i) + status for i in range(50)) + b"GET /healthz HTTP/1.0\r\n\r\n")
        received = b"".join(iter(lambda: peer.recv(1 << 16), b""))
    ids = [part.split(b'"')[0].decode() for part in received.split(b'"id":"')[1:]]
    assert ids == [str(i) for i in range(50)]
    assert received.count(b"HTTP/1.1 200") == 101


def test_the_access_log_has_a_line_for_every_request(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    with live_server(tmp_path, access_log=log) as live:
        live.post({"samples": [{}, {}], "id": "one\n"})
        live.post({"samples": 5}, X_Request_Id="two")
        live.get("/v1/status")
        deadline = time.monotonic() + 60
        while (not log.exists() or log.read_text().count("\n") < 3) and time.monotonic() < deadline:
            time.sleep(0.02)
        # Somebody else rotates it.
        log.rename(tmp_path / "moved.log")
        live.post({"samples": [{}], "id": "three"})
    # A line is written after its answer is sent, so requests of several connections may change places.
    lines = [json.loads(line) for line in (tmp_path / "moved.log").read_text().splitlines()]
    by_id = {line.get("id"): line for line in lines}
    assert len(lines) == 3
    first, second = by_id["one\n"], by_id["two"]
    third = next(line for line in lines if line.get("method") == "GET")
    assert (first["id"], first["model"], first["version"], first["variant"]) == ("one\n", "ctr", 7, "live")
    assert (first["protocol"], first["samples"], first["code"], first["status"]) == ("json", 2, "OK", 200)
    assert 0 <= first["queue_us"] <= first["total_us"] and first["peer"].startswith("127.0.0.1:")
    assert first["time"].endswith("Z")
    assert (second["id"], second["code"], second["status"]) == ("two", "DataError", 400)
    assert (third["method"], third["path"], third["status"]) == ("GET", "/v1/status", 200)
    assert [json.loads(line)["id"] for line in log.read_text().splitlines()] == ["three"]


def test_stopping_answers_what_has_arrived_and_closes(tmp_path: Path) -> None:
    outcomes: list[str] = []
    with live_server(tmp_path) as live:
        stop = threading.Event()

        def ask() -> None:
            with httpx.Client(base_url=live.url, verify=False, timeout=60) as client:
                while not stop.is_set():
                    try:
                        answer = client.post("/v1/models/ctr:predict", json={"samples": [{"user": "a"}]})
                    except httpx.ConnectError:
                        return
                    outcomes.append(str(answer.status_code))
                    if answer.headers.get("connection") == "close":
                        return

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        while len(outcomes) < 50:
            time.sleep(0.005)
        live.server.stop(60)
        stop.set()
        for thread in threads:
            thread.join()
    assert set(outcomes) == {"200"}


def test_every_path_of_the_description_is_answered(live: Live) -> None:
    for path, methods in live.get("/openapi.json").json()["paths"].items():
        real = path.replace("{model}", "ctr").replace("{version}", "7")
        for method, operation in methods.items():
            answer = live.client.request(method, real, content=b"{}" if method == "post" else None)
            assert str(answer.status_code) in operation["responses"], (method, real, answer.text)
            assert answer.status_code != 404
            content = operation["responses"][str(answer.status_code)]["content"]
            assert answer.headers["content-type"].partition(";")[0] in content
        refused = live.client.request("PATCH", real)
        assert refused.status_code == 405 and refused.headers["allow"], real
