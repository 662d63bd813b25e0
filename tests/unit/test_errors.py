"""The error tree: one exit status per class, the same codes natively, messages with their place."""

import re
from pathlib import Path

import pytest

from elasticctr import _native, errors
from elasticctr.errors import ERRORS
from elasticctr.ps.errors import EraError

NATIVE = Path(__file__).parents[2] / "native"


def test_exit_statuses_are_distinct() -> None:
    assert len({c.exit_status for c in ERRORS}) == len(ERRORS)


@pytest.mark.parametrize("leaf", ERRORS, ids=lambda c: c.__name__)
def test_every_native_code_becomes_its_python_class(leaf: type[errors.ElasticCTRError]) -> None:
    with pytest.raises(errors.ElasticCTRError, match="why, where, what next") as caught:
        _native.raise_error(leaf.exit_status, "why, where, what next")
    assert type(caught.value) is leaf


@pytest.mark.parametrize("leaf", ERRORS, ids=lambda c: c.__name__)
def test_native_statuses_are_the_same(leaf: type[errors.ElasticCTRError]) -> None:
    assert _native.http_status(leaf.exit_status) == leaf.http_status
    assert _native.grpc_status(leaf.exit_status) == leaf.grpc_status


def test_the_native_table_is_the_same() -> None:
    """Of every protocol's servers: they have one table."""
    table = (NATIVE / "util/status_table.h").read_text()
    rows = re.findall(r"\{Code::k\w+, \"(\w+)\", (\d+), (\d+), \d+\},", table)
    found = {name: (int(http), int(grpc)) for name, http, grpc in rows}
    assert found == {leaf.__name__: (leaf.http_status, leaf.grpc_status) for leaf in ERRORS}


@pytest.mark.parametrize("leaf", ERRORS, ids=lambda c: c.__name__)
def test_the_way_back_ends_at_the_same_status(leaf: type[errors.ElasticCTRError]) -> None:
    assert errors.class_of_code(leaf.__name__) is leaf
    assert errors.class_of_exit(leaf.exit_status) is leaf
    assert errors.class_of_http(leaf.http_status).http_status == leaf.http_status


def test_unknown_statuses() -> None:
    assert errors.class_of_exit(1) is errors.InternalError
    assert errors.class_of_http(418) is errors.DataError
    assert errors.class_of_http(599) is errors.InternalError
    assert errors.class_of_code("UsageError") is None


def test_a_subclass_is_its_leaf_to_everyone_else() -> None:
    error = EraError("the era is 3", 3)
    assert (error.code, error.exit_status) == ("FailedPrecondition", 15)
    assert error.describe() == {"error": {"code": "FailedPrecondition", "message": "the era is 3"}}


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__)
    assert drawn == [c.__name__ for c in ERRORS]


def test_data_errors_say_where() -> None:
    assert str(errors.DataError("label 2", Path("a.txt"), 7)) == "a.txt:7: label 2"
    assert str(errors.DataError("empty", "a.txt")) == "a.txt: empty"
