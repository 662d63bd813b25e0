"""The tls section: certificates come with their key, and each side of a connection gets only what it uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticctr.config.tls import TlsSettings, anchor, called, served, wants_clients

OWN: dict[str, Any] = {"cert": "cert.pem", "key": "key.pem"}


def make(**values: Any) -> TlsSettings:
    return TlsSettings.model_validate(values)


@pytest.mark.parametrize("values", [{"cert": "c"}, {"key": "k"}, {"client_ca": "a"}, {"ca": "a", "client_ca": "a"}])
def test_half_a_pair_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        make(**values)


def test_a_port_speaks_tls_only_with_a_certificate_to_show() -> None:
    listening, calling = make(**OWN), make(ca="ca.pem")
    assert served(listening) is listening and served(calling) is served(None) is None
    assert called(calling) is calling and called(listening) is called(None) is None
    assert not wants_clients(listening) and not wants_clients(None) and wants_clients(make(**OWN, client_ca="a"))


def test_files_of_each_side() -> None:
    both = make(**OWN, ca="ca.pem", check_host=False)
    assert both.server_files() == {"tls_cert": "cert.pem", "tls_key": "key.pem", "tls_client_ca": ""}
    pair = {"tls_cert": "cert.pem", "tls_key": "key.pem"}
    assert both.client_files() == {"tls_ca": "ca.pem", **pair, "tls_check_host": False}
    assert make(**OWN).client_files() == {}, "without an authority others are called in the clear"


def test_paths_are_relative_to_the_file_they_stand_in(tmp_path: Path) -> None:
    whole = str(tmp_path / "elsewhere" / "ca.pem")
    found = anchor({"cert": "cert.pem", "key": "../key.pem", "ca": whole, "check_host": True, "other": 1}, tmp_path)
    expected = {"cert": str(tmp_path / "cert.pem"), "key": str(tmp_path / "../key.pem"), "ca": whole}
    assert found == expected | {"check_host": True, "other": 1}
    assert anchor(None, tmp_path) is None and anchor("cert.pem", tmp_path) == "cert.pem"
