"""--tls-cert, --tls-key, --tls-client-ca and --tls-ca, the same for every command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from elasticctr.config.tls import TlsSettings
    from elasticctr.train.job import Job

CertOption = Annotated[
    Path | None, typer.Option("--tls-cert", help="Certificate (PEM) to listen with, and to show to servers it calls.")
]
KeyOption = Annotated[Path | None, typer.Option("--tls-key", help="Private key (PEM) of --tls-cert.")]
ClientCaOption = Annotated[
    Path | None,
    typer.Option("--tls-client-ca", help="Authority (PEM) that clients' certificates must be signed by."),
]
CaOption = Annotated[
    Path | None, typer.Option("--tls-ca", help="Authority (PEM) of the servers it calls; with it, they speak TLS.")
]
# Of commands that only call.
ShownCertOption = Annotated[
    Path | None, typer.Option("--tls-cert", help="Certificate (PEM) to show to servers that want one.")
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

    return parse_settings(TlsSettings, {**({} if base is None else base.model_dump()), **given}, "--tls options")


def with_tls(job: Job, cert: Path | None, key: Path | None, client_ca: Path | None, ca: Path | None) -> Job:
    """The job of a role, with the flags laid over its cluster.tls."""
    from elasticctr.train.cluster_settings import ClusterSettings

    cluster = job.cluster or ClusterSettings()
    tls = read_tls(cert, key, client_ca, ca, cluster.tls)
    return job if tls == cluster.tls else job.model_copy(update={"cluster": cluster.model_copy(update={"tls": tls})})
