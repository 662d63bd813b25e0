"""The error tree: one exit status per class, the same codes natively, messages with their place."""

import re
from pathlib import Path

import pytest

from elasticctr import _native, errors

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.ElasticCTRError)]
LEAVES = [c for c in CLASSES if c is not errors.ElasticCTRError]


def test_exit_statuses_are_distinct() -> None:
    assert len({c.exit_status for c in LEAVES}) == len(LEAVES)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda c: c.__name__)
def test_every_native_code_becomes_its_python_class(leaf: type[errors.ElasticCTRError]) -> None:
    with pytest.raises(errors.ElasticCTRError, match="why, where, what next") as caught:
        _native.raise_error(leaf.exit_status, "why, where, what next")
    assert type(caught.value) is leaf


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__)
    assert drawn == [c.__name__ for c in LEAVES]


def test_data_errors_say_where() -> None:
    assert str(errors.DataError("label 2", Path("a.txt"), 7)) == "a.txt:7: label 2"
    assert str(errors.DataError("empty", "a.txt")) == "a.txt: empty"
