"""Sizes on the command line: 512MiB, 1.5GB, 4096."""

from __future__ import annotations

import re

from elasticctr.errors import ConfigError

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Bytes. KiB, MiB and so on, or K, M and so on, are powers of 1024; KB, MB and so on powers of 1000."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise ConfigError(f"{text!r} is not a size such as 512MiB or 4GB")
    return int(float(match[1]) * _UNITS[match[2].lower()])
