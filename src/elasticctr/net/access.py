"""Access to a server: token files, the two scopes of a token, and the rule for addresses to listen on.

Every role that listens uses this module, so a token file that works for one works for all, and no server is open to
the network by accident. Knows nothing of HTTP or of any other protocol.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elasticctr.errors import AlreadyExists, ConfigError, NotFound
from elasticctr.storage.atomic import create, own_temporary, replacing, write_new

MIN_TOKEN_CHARACTERS = 16
MAX_TOKEN_CHARACTERS = 4096
_MAX_FILE_BYTES = 1 << 16

TokenScope = Literal["admin", "read"]
READ_ONLY = "this token may only read; use the token of --token-file"


@dataclass(frozen=True)
class Tokens:
    """The secrets of a server: `admin` may do everything, `read` may predict, look up and see status.

    With neither, any client may do everything. `read` is never given alone.
    """

    admin: str | None = None
    read: str | None = None

    def __post_init__(self) -> None:
        if self.read is not None and self.admin is None:
            raise ConfigError("--read-token-file needs --token-file; without it nobody could command the server")
        if self.read is not None and self.read == self.admin:
            raise ConfigError(
                "--token-file and --read-token-file hold the same secret; make another one with `elasticctr token FILE`"
            )

    def __bool__(self) -> bool:
        return self.admin is not None

    def scope_of(self, given: str | None) -> TokenScope | None:
        """The scope that a secret grants; None if it grants nothing. Takes the same time for every wrong secret."""
        if self.admin is None:
            return "admin"
        shown = (given or "").encode("utf-8", "surrogateescape")
        is_admin = hmac.compare_digest(shown, self.admin.encode())
        is_read = self.read is not None and hmac.compare_digest(shown, self.read.encode())
        return "admin" if is_admin else "read" if is_read else None


NO_TOKENS = Tokens()


def load_tokens(token_file: Path | None, read_token_file: Path | None = None) -> Tokens:
    """Reads the secrets that a server's two flags name."""
    return Tokens(read_optional_token(token_file), read_optional_token(read_token_file))


def read_optional_token(path: Path | None) -> str | None:
    return None if path is None else read_token(path)


def read_token(path: Path) -> str:
    """The secret on the first line of a token file. Refuses a file that others can read or change."""
    try:
        with path.open("rb") as file:
            _check_mode(path, os.fstat(file.fileno()).st_mode)
            data = file.read(_MAX_FILE_BYTES)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such token file; make one with `elasticctr token {path}`") from None
    except OSError as e:
        raise ConfigError(f"{path}: cannot read the token file: {e.strerror or e}") from None
    lines = data.decode("latin-1").splitlines()
    token = lines[0].strip() if lines else ""
    if not is_token(token):
        raise ConfigError(
            f"{path}: the first line must be a secret of {MIN_TOKEN_CHARACTERS} to {MAX_TOKEN_CHARACTERS} printable "
            f"ASCII characters; make one with `elasticctr token {path} --overwrite`"
        )
    return token


def is_token(text: str) -> bool:
    return MIN_TOKEN_CHARACTERS <= len(text) <= MAX_TOKEN_CHARACTERS and text.isascii() and text.isprintable()


def make_token() -> str:
    return secrets.token_hex(32)


def write_token(path: Path, token: str, *, overwrite: bool = False) -> None:
    """Writes a token file that only its owner can read."""
    data = f"{token}\n".encode("ascii")
    try:
        if overwrite:
            with replacing(path, own_temporary(path)) as temporary:
                create(temporary, data, 0o600)
        elif not write_new(path, data, mode=0o600):
            raise AlreadyExists(f"{path}: is there already; a new secret with --overwrite locks out the old one")
    except OSError as e:
        raise ConfigError(f"{path}: cannot write the token file: {e.strerror or e}") from None


def is_loopback(host: str) -> bool:
    """Whether a server that listens at `host` can be reached from this machine only."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM) if name else []
    except (OSError, UnicodeError):
        return False
    addresses = {str(entry[4][0]).partition("%")[0] for entry in found}
    return bool(addresses) and all(ipaddress.ip_address(address).is_loopback for address in addresses)


def check_listener(
    what: str, host: str, *, has_token: bool, has_client_ca: bool = False, insecure: bool = False
) -> None:
    """Refuses to open `what` to a network without access control."""
    if has_token or has_client_ca or insecure or is_loopback(host):
        return
    raise ConfigError(
        f"{what}: {host or 'every address'} can be reached from other machines, and nothing says who may use it; make "
        "a secret with `elasticctr token FILE` and give --token-file FILE, or let clients show certificates with "
        "--client-ca-file, or listen on 127.0.0.1; --insecure opens it to everybody"
    )


def _check_mode(path: Path, mode: int) -> None:
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        raise ConfigError(
            f"{path}: other users can read or change this token file (mode {stat.S_IMODE(mode):o}); "
            f"run `chmod 600 {path}`"
        )
