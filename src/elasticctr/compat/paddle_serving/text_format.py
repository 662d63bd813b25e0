"""Parses Protobuf's text format, used by Paddle Serving's configuration, without a schema: messages are fields in
order, each with its line. `binding` checks their types.

    engines { name: "ctr" gpu_ids: [0, 1] conf < a: -1.5e3 > }   # `name: value`, `name { … }`, `name: { … }`, lists

Every mistake is a ConfigError `FILE:LINE: …`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from elasticctr.errors import ConfigError, NotFound

MAX_BYTES = 16 << 20
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Word:
    """A bare word: an enum's name, true, false, inf, nan."""

    text: str


Scalar = str | int | float | Word


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    value: Scalar | Message
    line: int


@dataclass(frozen=True, slots=True)
class Message:
    source: str
    line: int
    fields: list[Field] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # word, number, string, or the punctuation itself; end
    text: str
    line: int


_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r\f\v]+|\#[^\n]*)
  | (?P<newline>\n)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)(?![A-Za-z0-9_.]))
  | (?P<string>"(?:[^"\\\n]|\\[^\n])*"|'(?:[^'\\\n]|\\[^\n])*')
  | (?P<mark>[{}<>\[\]:,;./-])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_PLAIN = {"n": 10, "t": 9, "r": 13, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, "'": 39, '"': 34, "?": 63}
_CLOSING = {"{": "}", "<": ">"}


def read_text_format(path: Path) -> Message:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e}") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: {len(data)} bytes; this is too large for a configuration file")
    try:
        return parse_text_format(data.decode("utf-8"), str(path))
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path}: not UTF-8 at byte {e.start}") from None


def parse_text_format(text: str, source: str) -> Message:
    return _TextFormatParser(text, source).parse()


class _TextFormatParser:
    def __init__(self, text: str, source: str) -> None:
        self._source = source
        self._tokens = self._scan(text)
        self._now = next(self._tokens)

    def parse(self) -> Message:
        message = Message(self._source, 1)
        self._fields(message, None, MAX_DEPTH)
        return message

    def _scan(self, text: str) -> Iterator[_Token]:
        at, line = 0, 1
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                start = text[at : at + 20].partition("\n")[0]
                what = "text without a closing quote" if start[0] in "\"'" else f"cannot read {start!r}"
                self._fail(what, line)
            at, kind = match.end(), match.lastgroup or ""
            if kind == "newline":
                line += 1
            elif kind == "mark":
                yield _Token(match[0], match[0], line)
            elif kind != "blank":
                yield _Token(kind, match[0], line)
        while True:
            yield _Token("end", "the end of the file", line)

    def _fail(self, what: str, line: int | None = None) -> NoReturn:
        raise ConfigError(f"{self._source}:{self._now.line if line is None else line}: {what}")

    def _take(self, *kinds: str) -> _Token:
        token = self._now
        if token.kind not in kinds:
            self._fail(f"found {token.text!r}, expected {' or '.join(kinds)}")
        self._now = next(self._tokens)
        return token

    def _has(self, kind: str) -> bool:
        if self._now.kind != kind:
            return False
        self._now = next(self._tokens)
        return True

    def _fields(self, message: Message, closing: str | None, depth: int) -> None:
        if depth == 0:
            self._fail(f"messages are nested more than {MAX_DEPTH} deep")
        while self._now.kind != (closing or "end"):
            if self._now.kind == "end":
                self._fail(f"the message that begins in line {message.line} has no {closing!r}")
            if self._now.kind in ("}", ">"):
                self._fail(f"{self._now.text!r} without an opening counterpart")
            line, name = self._now.line, self._name()
            is_scalar = self._has(":")
            if self._has("["):
                self._list(message, name, depth)
            elif self._now.kind in _CLOSING:
                message.fields.append(Field(name, self._message(depth), line))
            elif not is_scalar:
                self._fail(f"found {self._now.text!r} after {name!r}, expected ':' or '{{'")
            else:
                message.fields.append(Field(name, self._scalar(name), line))
            if not self._has(","):
                self._has(";")

    def _name(self) -> str:
        if not self._has("["):
            return self._take("word").text
        parts = []
        while self._now.kind in ("word", ".", "/"):
            parts.append(self._take("word", ".", "/").text)
        self._take("]")
        return f"[{''.join(parts)}]"

    def _message(self, depth: int) -> Message:
        opening = self._take("{", "<")
        message = Message(self._source, opening.line)
        self._fields(message, _CLOSING[opening.kind], depth - 1)
        self._take(_CLOSING[opening.kind])
        return message

    def _list(self, message: Message, name: str, depth: int) -> None:
        while self._now.kind != "]":
            line = self._now.line
            value = self._message(depth) if self._now.kind in _CLOSING else self._scalar(name)
            message.fields.append(Field(name, value, line))
            if self._now.kind != "]":
                self._take(",")
                if self._now.kind == "]":
                    self._fail("a list ends with a comma")
        self._take("]")

    def _scalar(self, name: str) -> Scalar:
        if self._now.kind == "string":
            data = b""
            while self._now.kind == "string":  # adjacent strings are one text
                data += self._unescape(self._take("string"))
            try:
                return data.decode("utf-8")
            except UnicodeDecodeError:
                self._fail(f"the text of {name!r} is not UTF-8")
        sign = -1 if self._has("-") else 1
        if self._now.kind == "number":
            return sign * self._number(self._take("number"))
        if self._now.kind != "word":
            self._fail(f"found {self._now.text!r}, expected the value of {name!r}")
        word = self._take("word")
        if word.text.lower() in ("inf", "infinity", "nan"):
            return sign * float(word.text)
        if sign < 0:
            self._fail(f"'-{word.text}' is not a number", word.line)
        return Word(word.text)

    def _number(self, token: _Token) -> int | float:
        text = token.text
        if text[:2].lower() == "0x":
            return int(text, 16)
        if text.isdigit():
            if text[0] == "0" and len(text) > 1:
                if not set(text) <= set("01234567"):
                    self._fail(f"{text!r} begins with 0 but is not an octal number", token.line)
                return int(text, 8)
            return int(text)
        return float(text.rstrip("fF"))

    def _unescape(self, token: _Token) -> bytes:
        def replace(match: re.Match[str]) -> str:
            octal, hexadecimal, short, long, plain = match.groups()
            if octal or hexadecimal:
                return _byte(int(octal, 8) if octal else int(hexadecimal, 16))
            if short or long:
                return "".join(_byte(b) for b in chr(int(short or long, 16)).encode("utf-8"))
            if plain not in _PLAIN:
                raise ValueError(f"\\{plain} is not an escape sequence")
            return _byte(_PLAIN[plain])

        def _byte(value: int) -> str:
            if value > 255:
                raise ValueError(f"\\{value:o} is more than a byte")
            return bytes([value]).decode("utf-8", "surrogateescape")

        try:
            return _ESCAPE.sub(replace, token.text[1:-1]).encode("utf-8", "surrogateescape")
        except (ValueError, UnicodeEncodeError) as e:
            self._fail(f"in {token.text[:40]}: {e}", token.line)
