"""A prediction server in this process, one for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.serve.live import Live, live_server


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_server(tmp_path_factory.mktemp("live"), samples=300, values=3000, body_mib=1) as live:
        yield live
