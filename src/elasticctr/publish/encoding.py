"""Rows of floats → bytes and back: fp32, fp16, or int8 with a scale per row. docs/formats/cube-file.md#rows"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elasticctr.publish.manifest import Encoding


def row_bytes(encoding: Encoding, dim: int) -> int:
    return {"fp32": 4 * dim, "fp16": 2 * dim, "int8": 4 + dim}[encoding]


def encode_rows(rows: NDArray[np.float32], encoding: Encoding) -> NDArray[np.uint8]:
    """[n, dim] floats as [n, row_bytes] bytes."""
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    count, dim = rows.shape
    if encoding == "fp32":
        return rows.view(np.uint8).reshape(count, 4 * dim)
    if encoding == "fp16":
        with np.errstate(over="ignore"):
            return rows.astype(np.float16).view(np.uint8).reshape(count, 2 * dim)
    encoded = np.empty((count, 4 + dim), dtype=np.uint8)
    scales = np.abs(rows).max(axis=1, initial=0.0).astype(np.float32) / np.float32(127)
    encoded[:, :4] = scales[:, None].view(np.uint8)
    with np.errstate(divide="ignore", invalid="ignore"):
        quantised = np.where(scales[:, None] > 0, np.rint(rows / scales[:, None]), 0)
    encoded[:, 4:] = np.clip(quantised, -127, 127).astype(np.int8).view(np.uint8)
    return encoded


def decode_rows(encoded: NDArray[np.uint8], encoding: Encoding) -> NDArray[np.float32]:
    """[n, row_bytes] bytes as [n, dim] floats."""
    encoded = np.ascontiguousarray(encoded)
    if encoding == "fp32":
        return encoded.view(np.float32)
    if encoding == "fp16":
        return encoded.view(np.float16).astype(np.float32)
    scales = np.ascontiguousarray(encoded[:, :4]).view(np.float32)
    decoded: NDArray[np.float32] = scales * encoded[:, 4:].view(np.int8).astype(np.float32)
    return decoded
