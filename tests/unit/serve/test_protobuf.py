"""protobuf.binpb is what tools/proto.sh makes of proto/*.proto."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from elasticctr.serve import protobuf

PROTO = Path(__file__).resolve().parents[3] / "proto"
COMPILED = descriptor_pb2.FileDescriptorSet.FromString(protobuf.DESCRIPTORS.read_bytes()).file
FIELD = re.compile(r"(?:(repeated|optional|required) )?(map<string, \w+>|[\w.]+) (\w+) = (\d+)(?: \[packed = true\])?;")

Fields = dict[str, list[tuple[str, int, str, bool]]]  # name, number, type, repeated


def read_source(name: str) -> Fields:
    found: Fields = {}
    path: list[str] = []
    for line in re.sub(r"//.*", "", (PROTO / name).read_text()).splitlines():
        if opened := re.match(r"\s*(message|enum|service|oneof) (\w+) \{", line):
            path.append(opened[2] if opened[1] == "message" else "")
            if opened[1] == "message":
                found[".".join(path)] = []
        elif (field := FIELD.fullmatch(line.strip())) and "message" not in line:
            owner = ".".join(part for part in path if part)
            is_repeated = field[1] == "repeated" or field[2].startswith("map")
            found[owner].append((field[3], int(field[4]), field[2].rpartition(" ")[2].strip(">"), is_repeated))
        closed = line.count("}") - line.count("{") + (opened is not None)
        path = path[: len(path) - closed]
    return found


def read_compiled(file: Any) -> Fields:
    found: Fields = {}

    def type_of(field: Any, maps: dict[str, Any]) -> str:
        if field.type_name.rpartition(".")[2] in maps:
            field = maps[field.type_name.rpartition(".")[2]].field[1]
        return field.type_name.rpartition(".")[2] or field.Type.Name(field.type).removeprefix("TYPE_").lower()

    def walk(message: Any, before: str) -> None:
        name = before + message.name
        maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
        found[name] = [
            (field.name, field.number, type_of(field, maps), field.label == field.LABEL_REPEATED)
            for field in message.field
        ]
        for nested in message.nested_type:
            if nested.name not in maps:
                walk(nested, f"{name}.")

    for message in file.message_type:
        walk(message, "")
    return found


def test_every_file_is_compiled() -> None:
    assert sorted(file.name for file in COMPILED) == sorted(path.name for path in PROTO.glob("*.proto"))


@pytest.mark.parametrize("file", COMPILED, ids=lambda file: file.name)
def test_fields_are_those_of_the_source(file: Any) -> None:
    assert read_compiled(file) == read_source(file.name), "run tools/proto.sh"


def test_feasigns_keep_all_their_bits() -> None:
    instance = protobuf.make(
        "baidu.paddle_serving.predictor.ctr_prediction.CTRReqInstance", sparse_ids=[protobuf.to_signed((1 << 64) - 2)]
    )
    assert instance.sparse_ids[0] == -2
