"""How the native module was built, read from the file itself: the sections of an ELF file, without tools."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from elasticctr import _native

_PT_DYNAMIC, _PT_GNU_STACK, _PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
_DT_STRTAB, _DT_STRSZ, _DT_BIND_NOW, _DT_FLAGS, _DT_FLAGS_1 = 5, 10, 24, 30, 0x6FFFFFFB
_DF_BIND_NOW, _DF_1_NOW = 0x8, 0x1
_EXECUTABLE = 0x1


def _segments(data: bytes) -> dict[int, tuple[int, int, int]]:
    """By type: flags, offset in the file, size."""
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    found = {}
    for place in range(start, start + size * count, size):
        kind, flags, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, place)
        found[kind] = (flags, offset, length)
    return found


def _dynamic(data: bytes) -> dict[int, int]:
    _, offset, length = _segments(data)[_PT_DYNAMIC]
    return dict(struct.unpack_from("<QQ", data, place) for place in range(offset, offset + length, 16))


@pytest.mark.promise(
    "a write past the end of a buffer in the native code",
    "the module is built with stack protectors and _FORTIFY_SOURCE, with full RELRO, bound at load, and a stack that "
    "is not executable",
)
def test_the_native_module_is_hardened() -> None:
    assert _native.__file__ is not None
    data = Path(_native.__file__).read_bytes()
    assert data[:5] == b"\x7fELF\x02", "a 64-bit ELF file"
    segments, dynamic = _segments(data), _dynamic(data)
    assert _PT_GNU_RELRO in segments, "RELRO"
    is_bound = dynamic.get(_DT_FLAGS, 0) & _DF_BIND_NOW or dynamic.get(_DT_FLAGS_1, 0) & _DF_1_NOW
    assert is_bound or _DT_BIND_NOW in dynamic, "BIND_NOW"
    assert not segments[_PT_GNU_STACK][0] & _EXECUTABLE, "a stack that is not executable"
    names = data[dynamic[_DT_STRTAB] :][: dynamic[_DT_STRSZ]].split(b"\0")
    assert b"__stack_chk_fail" in names, "stack protectors"
    if not _native.is_debug_build:
        assert any(name.startswith(b"__") and name.endswith(b"_chk") for name in names), "_FORTIFY_SOURCE"


def test_one_build_suits_every_processor() -> None:
    """Hot loops choose their instructions when the module is loaded; a flag for a whole file would not."""
    flags = (Path(__file__).parents[2] / "CMakeLists.txt").read_text(encoding="utf-8")
    assert not re.findall(r"-m(?:arch|cpu|tune|avx|sse|amx|fma)\S*", flags)
