"""Damage to versions: flipped bits, missing files, parts that do not belong together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

Files = dict[str, bytes]


def flip(name: str) -> Callable[[Path], None]:
    """Of a published version, a bit of the first file of this name."""

    def harm(directory: Path) -> None:
        path = next(directory.glob(name))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    return harm


def remove_schema(directory: Path) -> None:
    (directory / "schema.json").unlink()


def nothing(_: object) -> None:
    pass


def wrong_scores(files: Files) -> None:
    files["samples.json"] = files["samples.json"].replace(b'"scores":[0.', b'"scores":[0.9', 1)


def other_schema(files: Files) -> None:
    schema = json.loads(files["schema.json"])
    schema["tables"] = {"others": {"dim": 3}}
    for slot in schema["pooled"]:
        slot["table"] = "others"
    files["schema.json"] = json.dumps(schema).encode()


def wider_schema(files: Files) -> None:
    schema = json.loads(files["schema.json"])
    schema["pooled_width"] = 7
    files["schema.json"] = json.dumps(schema).encode()


def no_graph(files: Files) -> None:
    files["dense/model.onnx"] = b"no graph at all"


def no_schema(files: Files) -> None:
    files["schema.json"] = b"{}"


# Name; change before the version is written; change after; how it is refused.
BAD: list[tuple[str, Callable[[Files], None], Callable[[Path], None], str]] = [
    ("a bit of the graph", nothing, flip("dense/model.onnx"), "Corruption"),
    ("a bit of the rows", nothing, flip("sparse/*/part-*.arrow"), "Corruption"),
    ("a bit of the samples", nothing, flip("samples.json"), "Corruption"),
    ("no schema file", nothing, remove_schema, "NotFound"),
    ("scores of another model", wrong_scores, nothing, "Corruption: .*differ from samples.json"),
    ("schema of another model", other_schema, nothing, "Corruption: .*table 'others'"),
    ("schema of another graph", wider_schema, nothing, "Corruption"),
    ("no graph", no_graph, nothing, "Corruption"),
    ("no schema", no_schema, nothing, "Corruption"),
]
