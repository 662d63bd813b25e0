"""Manifests: a chain that leads nowhere, another format and names that leave their directory are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticctr.errors import ConfigError, Corruption, FailedPrecondition
from elasticctr.versions.manifest import check_name, parse_manifest

BASE: dict[str, Any] = {
    "format": 1,
    "model": "ctr",
    "version": 3,
    "kind": "base",
    "parent": 0,
    "base": 3,
    "created": 1.0,
    "elasticctr": "0.1.0",
    "tables": {
        "main": {
            "encoding": "fp32",
            "dim": 4,
            "row_bytes": 16,
            "segments": [{"name": "embedding", "dim": 4}],
            "rows": 10,
            "gone": 2,
        }
    },
    "files": [
        {"name": f"sparse/main/{name}", "bytes": 5, "sha256": "00"} for name in ("part-0", "part-1", "gone-0", "other")
    ]
    + [{"name": "sparse/main2/part-0", "bytes": 5, "sha256": "00"}],
}
DELTA = BASE | {"kind": "delta", "version": 5, "parent": 4, "base": 3, "chain": [3, 4]}


def dump(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest).encode()


def test_a_manifest_counts_its_rows_and_knows_its_files() -> None:
    found = parse_manifest(dump(BASE), "here")
    assert (found.rows, found.gone, found.bytes) == (10, 2, 25)
    assert [file.name for file in found.parts("main")] == ["sparse/main/part-0", "sparse/main/part-1"]
    assert [file.name for file in found.parts("main", "gone")] == ["sparse/main/gone-0"]
    assert parse_manifest(dump(DELTA), "here").chain == (3, 4)


def test_keys_of_a_later_version_are_passed_over() -> None:
    assert parse_manifest(dump(BASE | {"later": {"a": 1}}), "here") == parse_manifest(dump(BASE), "here")


@pytest.mark.parametrize(
    "manifest",
    [
        BASE | {"parent": 2},
        BASE | {"base": 2},
        BASE | {"chain": [1]},
        BASE | {"version": 0, "base": 0},
        BASE | {"kind": "patch"},
        DELTA | {"chain": []},
        DELTA | {"chain": [3]},
        DELTA | {"chain": [2, 4]},
        DELTA | {"parent": 5, "chain": [3, 5]},
        DELTA | {"parent": 2, "chain": [3, 2]},
        {key: value for key, value in BASE.items() if key != "files"},
    ],
)
def test_what_cannot_be_is_corruption_that_names_the_place(manifest: dict[str, Any]) -> None:
    with pytest.raises(Corruption, match="here"):
        parse_manifest(dump(manifest), "here")


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"{"])
def test_bytes_that_are_no_manifest_are_corruption(data: bytes) -> None:
    with pytest.raises(Corruption, match="here"):
        parse_manifest(data, "here")


def test_another_format_is_told_from_damage() -> None:
    with pytest.raises(FailedPrecondition, match="format 2"):
        parse_manifest(dump(BASE | {"format": 2}), "here")


@pytest.mark.parametrize("name", ["", "..", ".a", "-a", "a/b", "a b", "a" * 65, "a\n"])
def test_names_that_could_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="table"):
        check_name(name, "table")
