"""Encodes and decodes rows of floats: fp32, fp16, or int8 with a scale per row. docs/formats/cube-file.md#rows"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elasticctr import _native
from elasticctr.versions.manifest import Encoding


def row_bytes(encoding: Encoding, dim: int) -> int:
    return {"fp32": 4 * dim, "fp16": 2 * dim, "int8": 4 + dim}[encoding]


def encode_rows(rows: NDArray[np.float32], encoding: Encoding) -> NDArray[np.uint8]:
    """[n, dim] floats as [n, row_bytes] bytes. DataError if a value does not fit: not finite, or too large for fp16."""
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    if encoding == "fp32":
        return rows.view(np.uint8).reshape(len(rows), 4 * rows.shape[1])
    encoded: NDArray[np.uint8] = _native.encode_rows(rows, encoding)
    return encoded


def decode_rows(encoded: NDArray[np.uint8], encoding: Encoding) -> NDArray[np.float32]:
    """[n, row_bytes] bytes as [n, dim] floats."""
    encoded = np.ascontiguousarray(encoded)
    if encoding == "fp32":
        return encoded.view(np.float32)
    dim = encoded.shape[1] // 2 if encoding == "fp16" else encoded.shape[1] - 4
    decoded: NDArray[np.float32] = _native.decode_rows(encoded, encoding, dim)
    return decoded
