import json

import pytest

from elasticctr.errors import ERRORS, Corruption, DataError, ElasticCTRError, InternalError, Unavailable
from elasticctr.net.answers import error_named, read_error, retry_after


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_comes_back_as_it_was_raised(kind: type[ElasticCTRError]) -> None:
    body = json.dumps(kind("gone").describe()).encode()
    found = read_error(kind.http_status, body, "", "http://a")
    assert type(found) is kind
    assert str(found) == "http://a: gone"


@pytest.mark.parametrize(
    ("status", "body", "kind", "text"),
    [
        (503, b"", Unavailable, "http://a: status 503"),
        (502, b"<html>Bad Gateway</html>", Unavailable, "http://a: <html>Bad Gateway</html>"),
        (400, b'{"error": "no such input"}', DataError, "http://a: no such input"),
        (413, b'{"error": {"code": "Odd", "message": "m"}}', DataError, "http://a: m"),
        (500, b"[" * 100_000, InternalError, "http://a: " + "[" * 200),
    ],
)
def test_other_shapes_are_told_by_status(status: int, body: bytes, kind: type[ElasticCTRError], text: str) -> None:
    found = read_error(status, body, "", "http://a")
    assert (type(found), str(found)) == (kind, text)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("", None), ("2.5", 2.5), ("9999999", 3600.0), ("-1", None), ("nan", None), ("Fri, 20 Nov 2026", None)],
)
def test_retry_after_is_read(header: str, seconds: float | None) -> None:
    found = read_error(429, b"", header, "http://a")
    assert isinstance(found, Unavailable)
    assert found.retry_after_s == seconds


def test_retry_after_is_written_for_unavailable_alone() -> None:
    assert retry_after(Unavailable("later", 2.6)) == {"Retry-After": "3"}
    assert retry_after(Unavailable("later")) == {"Retry-After": "1"}
    assert retry_after(DataError("bad")) == {}


def test_an_error_by_its_name() -> None:
    assert type(error_named("Corruption: bad bytes", "a")) is Corruption
    assert str(error_named("", "a")) == "a: failed without a reason"
