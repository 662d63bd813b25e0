"""The `request_log` section of a server's settings. What it writes is docs/formats/request-log.md."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from elasticctr.config import Settings


class RequestLogSettings(Settings):
    """Which predictions are logged, where, and how much disk that may take."""

    directory: str = Field(min_length=1, description="directory of the files requests-*.jsonl; created if needed")
    sample: float = Field(1.0, ge=0, le=1, description="share of the requests to log, by a hash of their id")
    max_gib: float = Field(10.0, gt=0, le=1 << 20, description="size of all files together; the oldest are removed")
    file_mib: float = Field(64.0, gt=0, le=1 << 20, description="size at which a file is complete")
    file_s: int = Field(60, ge=1, le=86400, description="age at which a file is complete, in seconds")
    queue_mib: float = Field(
        64.0, gt=0, le=1 << 14, description="size of requests waiting to be written; more are dropped"
    )
    body_kib: float = Field(256.0, ge=0, le=1 << 20, description="longer requests are logged without their text")

    def native(self) -> dict[str, Any]:
        """The arguments of `_native.RequestLog`."""
        return {
            "directory": self.directory,
            "sample": self.sample,
            "max_bytes": int(self.max_gib * (1 << 30)),
            "file_bytes": int(self.file_mib * (1 << 20)),
            "file_s": self.file_s,
            "queue_bytes": int(self.queue_mib * (1 << 20)),
            "body_bytes": int(self.body_kib * (1 << 10)),
        }
