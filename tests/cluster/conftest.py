"""The log that training stories share."""

from __future__ import annotations

import pytest

from tests.cluster.training import Log, make_log


@pytest.fixture(scope="session")
def training_log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """The log of the stories in test_train_*.py; long enough for a fault during training."""
    return make_log(tmp_path_factory.mktemp("training") / "log", 30_000)
