"""proto/open_inference.proto has the names, numbers and kinds of fields that Triton's generated classes have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2, service_pb2

TEXT = (Path(__file__).resolve().parents[4] / "proto" / "open_inference.proto").read_text()
KINDS = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
}


def read_messages() -> dict[str, dict[str, tuple[str, int]]]:
    """Fields of every message by its dotted name: (kind, number)."""
    messages: dict[str, dict[str, tuple[str, int]]] = {}
    path: list[str] = []
    for line in re.sub(r"//.*", "", TEXT).splitlines():
        if opened := re.match(r"\s*(message|enum|service|oneof)\s+(\w+)\s*\{(.*)", line):
            path.append(opened[2] if opened[1] == "message" else f"<{opened[1]}>")
            if opened[1] == "message":
                messages[".".join(path)] = {}
            if "}" in opened[3]:
                path.pop()
        elif field := re.match(r"\s*((?:repeated )?[\w.]+|map<string, \w+>) (\w+) = (\d+);", line):
            messages[".".join(part for part in path if not part.startswith("<"))][field[2]] = (field[1], int(field[3]))
        elif re.match(r"\s*\}", line):
            path.pop()
    return messages


def kind_of(field: Any) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return f"map<string, {field.message_type.fields_by_name['value'].message_type.name}>"
    kind = (
        field.message_type.name
        if field.message_type
        else field.enum_type.name
        if field.enum_type
        else KINDS[field.type]
    )
    return f"repeated {kind}" if field.is_repeated else kind


def descriptor_of(name: str) -> Any:
    first, *rest = name.split(".")
    found = getattr(service_pb2, first, None) or getattr(model_config_pb2, first)
    for part in rest:
        found = getattr(found, part)
    return found.DESCRIPTOR


def test_fields_are_the_protocols() -> None:
    messages = read_messages()
    assert len(messages) > 25
    for name, fields in messages.items():
        known = descriptor_of(name).fields_by_name
        for field, (kind, number) in fields.items():
            assert (kind, number) == (kind_of(known[field]), known[field].number), f"{name}.{field}"


def test_methods_are_the_protocols_and_all_are_served() -> None:
    methods = dict(re.findall(r"rpc (\w+)\((\w+)\)", TEXT))
    known = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    assert {name: known[name].input_type.name for name in methods} == methods
    source = (Path(__file__).resolve().parents[4] / "src/elasticctr/serve/kserve/grpc_server.py").read_text()
    assert set(re.findall(r"\{_SERVICE\}/(\w+)", source)) == set(methods)
