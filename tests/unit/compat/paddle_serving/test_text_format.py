"""Protobuf's text format: every way to write a field, and mistakes with their line."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, text_format

from elasticctr.compat.paddle_serving.text_format import Message, Word, parse_text_format, read_text_format
from elasticctr.errors import ConfigError, NotFound


def plain(message: Message) -> list[tuple[str, object]]:
    return [(f.name, plain(f.value) if isinstance(f.value, Message) else f.value) for f in message.fields]


def parse(text: str) -> list[tuple[str, object]]:
    return plain(parse_text_format(text, "f"))


def test_every_way_to_write_a_field() -> None:
    text = """
    # a comment
    a: 1, b: -2; c: 0x1F d: 017   # another
    e: 1.5 f: -1e3f g: .5 h: inf
    name { x: true }
    name: { x: FALSE }
    name < x: SOME_ENUM >
    list: [1, 2, 3] many: [{y: 1}, {y: 2}] none: []
    [pkg.extension]: 4
    """
    assert parse(text) == [
        ("a", 1),
        ("b", -2),
        ("c", 31),
        ("d", 15),
        ("e", 1.5),
        ("f", -1000.0),
        ("g", 0.5),
        ("h", float("inf")),
        ("name", [("x", Word("true"))]),
        ("name", [("x", Word("FALSE"))]),
        ("name", [("x", Word("SOME_ENUM"))]),
        ("list", 1),
        ("list", 2),
        ("list", 3),
        ("many", [("y", 1)]),
        ("many", [("y", 2)]),
        ("[pkg.extension]", 4),
    ]


def test_texts_follow_each_other_and_have_escapes() -> None:
    assert parse(r"""a: "x" 'y' "\n\x41\101\u4e2d\"" """) == [("a", 'xy\nAA中"')]
    assert parse('a: "模型"') == [("a", "模型")]


def test_lines_are_kept() -> None:
    message = parse_text_format('a: 1\n\nb {\n  c: "x"\n}\n', "f")
    assert [field.line for field in message.fields] == [1, 3]
    inner = message.fields[1].value
    assert isinstance(inner, Message)
    assert inner.fields[0].line == 4


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: ]", 2, "expected the value of 'b'"),
        ("a {\n b: 1\n", 3, "begins in line 1 has no '}'"),
        ("a: 1\n}", 2, "without an opening counterpart"),
        ("a { b: 1 >", 1, "without an opening counterpart"),
        ('a: "x', 1, "closing quote"),
        ('a: "x\ny"', 1, "closing quote"),
        ("a 1", 1, "expected ':'"),
        ("a: 1\n@", 2, "cannot read '@'"),
        ("a: [1 2]", 1, "expected ,"),
        ("a: [1,]", 1, "ends with a comma"),
        ("a: 08", 1, "octal"),
        ("a: -b", 1, "is not a number"),
        (r'a: "\q"', 1, "is not an escape"),
        (r'a: "\777"', 1, "more than a byte"),
        (r'a: "\xff"', 1, "not UTF-8"),
        ("1: 2", 1, "expected word"),
        ("a: 12ab", 1, "cannot read"),
        ("a {" * 70, 1, "nested more than"),
    ],
)
def test_mistakes_name_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as e:
        parse_text_format(text, "dir/f.prototxt")
    assert str(e.value).startswith(f"dir/f.prototxt:{line}: ")
    assert words in str(e.value)


def test_files(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_text_format(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 3"):
        read_text_format(tmp_path / "bad")


def test_agrees_with_protobufs_own_reader() -> None:
    """Text written by protobuf's library is read the same here, field by field."""
    file = descriptor_pb2.FileDescriptorProto(name="x\n\"'\\\t.proto", package="a.b", dependency=["é", "\x01"])
    message = file.message_type.add(name="M")
    message.field.add(name="f", number=7, label="LABEL_REPEATED", type="TYPE_INT64", default_value="-1")
    message.extension_range.add(start=100, end=536870912)
    file.options.java_multiple_files = True
    option = file.options.uninterpreted_option.add(double_value=-2.5e-300, positive_int_value=2**64 - 1)
    option.string_value = bytes(range(127)) + "中".encode()
    for as_one_line in (True, False):
        text = text_format.MessageToString(file, as_one_line=as_one_line)
        assert _rebuilt(parse_text_format(text, "f"), descriptor_pb2.FileDescriptorProto()) == file


def _rebuilt(message: Message, into: object) -> object:
    for field in message.fields:
        own = into.DESCRIPTOR.fields_by_name[field.name]  # type: ignore[attr-defined]
        value: Any = field.value
        if isinstance(value, Message):
            inner = getattr(into, field.name)
            _rebuilt(value, inner.add() if own.is_repeated else inner)
            continue
        if isinstance(value, Word):
            value = value.text == "true" if own.enum_type is None else own.enum_type.values_by_name[value.text].number
        if own.type == own.TYPE_BYTES:
            assert isinstance(value, str)
            value = value.encode()
        if own.is_repeated:
            getattr(into, field.name).append(value)
        else:
            setattr(into, field.name, value)
    return into


def test_mutated_text_ends_in_a_message_or_a_config_error() -> None:
    seed = "engines {\n name: \"ctr\" # c\n gpu_ids: [0, 1]\n conf < a: -1.5e3 b: '\\x41' >\n flag: true\n}\n"
    chance = random.Random(5)
    for _ in range(3000):
        text = list(seed)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(text))
            text[at] = chance.choice([chr(chance.randrange(1, 300)), "", text[at] * 2, *"{}<>[]:\"'\\-#"])
        try:
            parse_text_format("".join(text), "f")
        except ConfigError as e:
            assert str(e).startswith("f:")
