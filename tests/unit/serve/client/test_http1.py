"""Parsing answers, however their bytes are split."""

from __future__ import annotations

import random

import pytest

from elasticctr.serve.client.http1 import MAX_HEAD_BYTES, HttpResponse, ResponseReader, TransportError, format_head

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN
TRAILERS = CHUNKED[:-2] + b"Digest: x\r\n\r\n"


def feed(data: bytes, cuts: list[int]) -> HttpResponse:
    reader = ResponseReader()
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        response = reader.feed(data[start:stop])
        if response is not None:
            assert stop == len(data)
            return response
    raise AssertionError("the answer was not seen to be whole")


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, CONTINUED, TRAILERS])
def test_any_cuts(data: bytes) -> None:
    for cut in range(1, len(data)):
        response = feed(data, [cut])
        assert (response.status, response.body, response.keep_alive) == (200, b"hello", True)
    assert feed(data, list(range(1, len(data)))).body == b"hello"


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close", False),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.0 200 OK\r\nconnection: Keep-Alive", True),
    ],
)
def test_keep_alive(head: bytes, keeps: bool) -> None:
    assert feed(head + b"\r\nContent-Length: 0\r\n\r\n", []).keep_alive is keeps


def test_bytes_after_the_answer_end_the_connection() -> None:
    response = ResponseReader().feed(PLAIN + b"HTTP")
    assert response is not None
    assert (response.body, response.keep_alive) == (b"hello", False)


def test_body_until_the_end() -> None:
    reader = ResponseReader()
    assert reader.feed(b"HTTP/1.1 200 OK\r\n\r\nhel") is None
    assert reader.feed(b"lo") is None
    response = reader.feed_end()
    assert (response.body, response.keep_alive) == (b"hello", False)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"x" * (MAX_HEAD_BYTES + 1),
    ],
)
def test_not_an_answer(data: bytes) -> None:
    with pytest.raises(TransportError):
        ResponseReader().feed(data)


@pytest.mark.parametrize("cut", [0, 10, len(PLAIN) - 1])
def test_cut_off(cut: int) -> None:
    reader = ResponseReader()
    if cut:
        assert reader.feed(PLAIN[:cut]) is None
    assert reader.is_empty is (cut == 0)
    with pytest.raises(TransportError, match="closed the connection"):
        reader.feed_end()


def test_random_bytes_do_no_harm() -> None:
    draw = random.Random(1)
    for _ in range(2000):
        data = bytearray(draw.choice([PLAIN, CHUNKED, TRAILERS]))
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        reader = ResponseReader()
        try:
            if reader.feed(bytes(data)) is None:
                reader.feed_end()
        except TransportError:
            pass


def test_head_has_no_line_breaks_of_others() -> None:
    assert format_head("/v1/models/m:predict", "h:1", "t") == (
        b"POST /v1/models/m:predict HTTP/1.1\r\nHost: h:1\r\nContent-Type: application/json\r\n"
        b"Accept: application/json\r\nAuthorization: Bearer t\r\n"
    )
