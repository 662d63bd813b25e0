"""Bad versions are announced under load: each is refused with its reason, and requests go on as if nothing was."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elasticctr.versions.repository import Repository
from tests.cluster.harm import BAD
from tests.cluster.predicting import Predictor
from tests.cluster.scored import Scored
from tests.cluster.truth import announce


@pytest.mark.slow
def test_bad_versions_are_refused_under_load(tmp_path: Path) -> None:
    scored = Scored(Repository(str(tmp_path / "repo")))
    scored.base()
    with Predictor(tmp_path, scored) as predictor:
        predictor.start()
        predictor.wait_live(1)
        with predictor.load() as load:
            for what, change, harm, reason in BAD:
                bad = scored.publish(scored.define(1), change, is_announced=False)
                harm(tmp_path / "repo" / "ctr" / str(bad))
                announce(scored.repository, bad)
                refused = predictor.wait_refused(bad)
                assert re.match(reason, f"{refused['code']}: {refused['reason']}"), (what, refused)
                assert predictor.is_ready()
            good = scored.publish(scored.define(1))
            predictor.wait_live(good)
        found = load.check()
        assert set(found.versions) <= {1, good}
