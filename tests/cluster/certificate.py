"""Certificates for 127.0.0.1, valid for a day: self-signed, or signed by an authority made here."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from elasticctr.config.tls import TlsSettings


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """cert.pem and key.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = _sign("cube test", key, "cube test", key, is_authority=True, address="127.0.0.1")
    return _write(folder, "cert.pem", made, "key.pem", key)


class Authority:
    """Signs certificates into its folder; `path` is its own."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        made = _sign(name, self._key, name, self._key, is_authority=True)
        self.path, _ = _write(folder, "ca.pem", made, "ca-key.pem", self._key)

    def issue(self, name: str, address: str = "127.0.0.1") -> tuple[Path, Path]:
        """Writes NAME.pem and NAME-key.pem, replacing earlier ones, with a new key and number."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _sign(name, key, self._name, self._key, is_authority=False, address=address)
        return _write(self._folder, f"{name}.pem", made, f"{name}-key.pem", key)

    def mutual(self, name: str) -> TlsSettings:
        """Settings of a process that listens, requires certificates, and shows its own to those it calls."""
        cert, key = self.issue(name)
        return TlsSettings(cert=cert, key=key, client_ca=self.path, ca=self.path)


def flags_of(tls: TlsSettings) -> list[str]:
    """The same as options of a command."""
    given = {"--cert-file": tls.cert, "--key-file": tls.key, "--client-ca-file": tls.client_ca, "--ca-file": tls.ca}
    return [text for name, path in given.items() if path is not None for text in (name, str(path))]


def _sign(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
    address: str | None = None,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    building = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), True)
    )
    if address is not None:
        names = [x509.IPAddress(ipaddress.ip_address(address))]
        building = building.add_extension(x509.SubjectAlternativeName(names), False)
    return building.sign(issuer_key, hashes.SHA256())


def _write(
    folder: Path, cert_name: str, made: x509.Certificate, key_name: str, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # As certificate managers do: each file is replaced in one step.
    for name, data in ((key_name, private), (cert_name, made.public_bytes(serialization.Encoding.PEM))):
        beside = folder / f".{name}.new"
        beside.write_bytes(data)
        beside.replace(folder / name)
    return folder / cert_name, folder / key_name
