"""Names in built directories and cube files (docs/formats/cube-directory.md, docs/formats/cube-file.md)."""

from __future__ import annotations

from typing import Literal

FORMAT = 1
BUILD = "build.json"
SHARD = "shard.json"

Kind = Literal["base", "delta"]
Sharding = Literal["buckets", "modulo"]
Encoding = Literal["raw", "fp32", "fp16", "int8"]
