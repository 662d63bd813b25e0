"""The log that training stories share."""

from __future__ import annotations

import pytest

from tests.cluster.training import Log, make_log


@pytest.fixture(scope="session")
def training_log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """What the stories of test_train_*.py train on; long enough to interfere with."""
    return make_log(tmp_path_factory.mktemp("training") / "log", 30_000)
