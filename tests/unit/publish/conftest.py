"""A learner with a repository to publish to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.publish.learning import make_job
from tests.unit.publish.story import Story

from elasticctr.publish import dense as dense_side
from elasticctr.train.learner import Learner


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> dense_side.GraphTemplate:
    """Exporting takes seconds; every publisher of these tests starts from one export."""
    return dense_side.GraphTemplate(Learner(make_job(tmp_path_factory.mktemp("template"))))


@pytest.fixture
def story(tmp_path: Path, template: dense_side.GraphTemplate) -> Story:
    return Story(tmp_path, template)
