"""Scoring for the peers of benchmarks/predict.py, as a good engineer would write it: one MGET per request, numpy
for pooling, ONNX Runtime with one thread. Runs in their environments; knows nothing of ElasticCTR.

A request is `{"user": {slot: text, …, dense slot: number, …}, "candidates": [{slot: text, …}, …]}`. Redis has a row of
float32 under `slot:text`. The folder's peers.json says which slots go where.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


class Scorer:
    def __init__(self, folder: str) -> None:
        layout = json.loads(Path(folder, "peers.json").read_text())
        self.user_slots: list[str] = layout["user"]
        self.item_slots: list[str] = layout["item"]
        self.dense_slots: list[str] = layout["dense"]
        self.dim: int = layout["dim"]
        self.width: int = layout["pooled_width"]
        # Where the floats of a row go, slot after slot.
        self.user_columns = np.array([layout["columns"][slot] for slot in self.user_slots]).ravel()
        self.item_columns = np.array([layout["columns"][slot] for slot in self.item_slots]).ravel()
        self.missing = bytes(4 * self.dim)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(layout["onnx"], options, providers=["CPUExecutionProvider"])

    def keys(self, request: dict[str, Any]) -> list[str]:
        user = request["user"]
        keys = [f"{slot}:{user[slot]}" for slot in self.user_slots]
        for item in request["candidates"]:
            keys += [f"{slot}:{item[slot]}" for slot in self.item_slots]
        return keys

    def inputs(self, request: dict[str, Any], rows: list[bytes | None]) -> tuple[Any, Any]:
        missing = self.missing
        found = np.frombuffer(b"".join([row or missing for row in rows]), np.float32).reshape(-1, self.dim)
        n, shared = len(request["candidates"]), len(self.user_slots)
        pooled = np.empty((n, self.width), np.float32)
        pooled[:, self.user_columns] = found[:shared].reshape(1, -1)
        pooled[:, self.item_columns] = found[shared:].reshape(n, -1)
        user = request["user"]
        dense = np.array([user[slot] for slot in self.dense_slots], np.float32)
        dense = np.log1p(np.maximum(dense, 0))
        return pooled, np.broadcast_to(dense, (n, len(dense)))

    def run(self, pooled: Any, dense: Any) -> Any:
        return self.session.run(["scores"], {"pooled": pooled, "dense": np.ascontiguousarray(dense)})[0]

    def score(self, request: dict[str, Any], rows: list[bytes | None]) -> Any:
        return self.run(*self.inputs(request, rows))

    def score_many(self, requests: list[dict[str, Any]], rows: list[bytes | None]) -> list[Any]:
        """Scores several requests whose keys were looked up together, in one run of the graph."""
        parts, at = [], 0
        for request in requests:
            count = len(self.user_slots) + len(self.item_slots) * len(request["candidates"])
            parts.append(self.inputs(request, rows[at : at + count]))
            at += count
        scores = self.run(np.concatenate([p for p, _ in parts]), np.concatenate([d for _, d in parts]))
        cuts = np.cumsum([len(request["candidates"]) for request in requests])[:-1]
        return np.split(scores, cuts)
