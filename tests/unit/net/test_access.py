"""Token files, the scopes of a token, and which addresses a server may listen on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticctr.errors import AlreadyExists, ConfigError, NotFound
from elasticctr.net.access import (
    Tokens,
    check_listener,
    is_loopback,
    load_tokens,
    make_token,
    read_optional_token,
    read_token,
    write_token,
)

SECRET = "a secret of sixteen"


@pytest.mark.promise(
    "a token file with a short secret, or one that other users can read or change",
    "every role refuses it and says how to make a better one",
)
def test_a_token_file_must_hold_a_secret_that_others_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(NotFound, match="elasticctr token"):
        read_token(path)
    path.touch(mode=0o600)
    for text in ("", "\n", "x" * 15 + "\n", "schlüssel-ist-lang-genug\n", "y" * 5000, "tab\tin the middle of it\n"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="elasticctr token"):
            read_token(path)
    path.write_text(f" {SECRET} \r\nsecond line\n")
    for mode in (0o644, 0o604, 0o602, 0o660, 0o666):
        path.chmod(mode)
        with pytest.raises(ConfigError, match="chmod 600"):
            read_token(path)
    for mode in (0o600, 0o400, 0o640, 0o440):
        path.chmod(mode)
        assert read_token(path) == SECRET
    with pytest.raises(ConfigError, match="cannot read the token file"):
        read_token(tmp_path)
    assert read_optional_token(None) is None


def test_a_written_token_is_its_owners_alone(tmp_path: Path) -> None:
    path, before = tmp_path / "token", os.umask(0)
    try:
        write_token(path, SECRET)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600 and read_token(path) == SECRET
    with pytest.raises(AlreadyExists, match="--overwrite"):
        write_token(path, make_token())
    path.chmod(0o666)
    write_token(path, make_token(), overwrite=True)
    assert read_token(path) != SECRET and len(read_token(path)) == 64
    assert [file.name for file in tmp_path.iterdir()] == ["token"]
    with pytest.raises(ConfigError, match="cannot write"):
        write_token(tmp_path / "no" / "token", SECRET)


def test_scopes(tmp_path: Path) -> None:
    write_token(tmp_path / "admin", "the token of admins")
    write_token(tmp_path / "read", "the token of readers")
    tokens = load_tokens(tmp_path / "admin", tmp_path / "read")
    assert tokens
    assert tokens.scope_of("the token of admins") == "admin"
    assert tokens.scope_of("the token of readers") == "read"
    for wrong in (None, "", "the token of", "the token of readers "):
        assert tokens.scope_of(wrong) is None
    assert load_tokens(tmp_path / "admin").scope_of("the token of readers") is None
    assert not Tokens() and Tokens().scope_of(None) == "admin"
    with pytest.raises(ConfigError, match="needs --token-file"):
        load_tokens(None, tmp_path / "read")
    with pytest.raises(ConfigError, match="the same secret"):
        load_tokens(tmp_path / "read", tmp_path / "read")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    check_listener("cube server", host, has_token=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "192.168.1.2", "fe80::1%eth0", "no such host"])
def test_other_addresses_need_a_token_or_certificates(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match=r"cube server: .*elasticctr token FILE.*--insecure"):
        check_listener("cube server", host, has_token=False)
    check_listener("cube server", host, has_token=True)
    check_listener("cube server", host, has_token=False, has_client_ca=True)
    check_listener("cube server", host, has_token=False, insecure=True)
