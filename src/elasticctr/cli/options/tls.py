"""--cert-file, --key-file, --client-ca-file and --ca-file, the same for every command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from elasticctr.config.tls import TlsSettings
    from elasticctr.train.job import Job

CertOption = Annotated[
    Path | None,
    typer.Option("--cert-file", help="Certificate (PEM) to listen with and to present to other servers."),
]
KeyOption = Annotated[Path | None, typer.Option("--key-file", help="Private key (PEM) of --cert-file.")]
ClientCaOption = Annotated[
    Path | None,
    typer.Option("--client-ca-file", help="Authority (PEM) that must have signed clients' certificates."),
]
CaOption = Annotated[Path | None, typer.Option("--ca-file", help="Authority (PEM) of the servers to call over TLS.")]
# Of commands that only call.
ClientCertOption = Annotated[
    Path | None, typer.Option("--cert-file", help="Certificate (PEM) to present to servers that require one.")
]


def read_tls(
    cert: Path | None,
    key: Path | None,
    client_ca: Path | None = None,
    ca: Path | None = None,
    base: TlsSettings | None = None,
) -> TlsSettings | None:
    """Settings of the flags, laid over those of a file. None: nothing was given."""
    given = {"cert": cert, "key": key, "client_ca": client_ca, "ca": ca}
    given = {name: path for name, path in given.items() if path is not None}
    if not given:
        return base
    from elasticctr.config import parse_settings
    from elasticctr.config.tls import TlsSettings

    return parse_settings(TlsSettings, {**({} if base is None else base.model_dump()), **given}, "TLS options")


def with_tls(job: Job, cert: Path | None, key: Path | None, client_ca: Path | None, ca: Path | None) -> Job:
    """The job of a role, with the flags laid over its cluster.tls."""
    from elasticctr.train.cluster_settings import ClusterSettings

    cluster = job.cluster or ClusterSettings()
    tls = read_tls(cert, key, client_ca, ca, cluster.tls)
    return job if tls == cluster.tls else job.model_copy(update={"cluster": cluster.model_copy(update={"tls": tls})})
