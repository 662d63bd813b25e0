"""Two tables, a model over them, and two pservers that hold them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.ps.pservers import LocalPservers
from tests.unit.ps.trainer.remote_steps import TABLES, Model

from elasticctr.table import Table


@pytest.fixture
def tables() -> list[Table]:
    return [Table(settings) for settings in TABLES]


@pytest.fixture
def model(tables: list[Table]) -> Model:
    return Model(tables)


@pytest.fixture
def pservers() -> Iterator[LocalPservers]:
    cluster = LocalPservers(TABLES, shards=2, dense_floats=50)
    yield cluster
    cluster.close()
