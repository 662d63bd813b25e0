"""A donefile with garbage, blank lines or an unfinished last line: complete lines count, the rest is skipped."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from elasticctr.versions.donefile import DONEFILE
from tests.cluster.story import Story
from tests.cluster.truth import MODEL


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_donefile_with_garbage_blank_and_unfinished_lines(tmp_path: Path) -> None:
    with Story(tmp_path, shards=1) as story:
        story.begin()
        donefile = story.cluster.repository / MODEL / DONEFILE
        with donefile.open("ab") as file:
            file.write(
                b"\n\n   \ngarbage\n{\xff\xfe}\n[1, 2]\n"
                + b'{"event": "publish", "version": 99}\n'
                + b"x" * 100_000
                + b"\n"
            )
        version = story.delta()
        story.wait_live(version)
        # A line is there once its newline is; until then the version before stays.
        before = donefile.read_bytes()
        later = story.delta()
        line = donefile.read_bytes()[len(before) :]
        for size in (len(line) // 2, len(line) - 1):
            donefile.write_bytes(before + line[:size])
            time.sleep(0.7)
            assert story.cluster.status()["live"] in (version, later)
        donefile.write_bytes(before + line)
        story.wait_live(later)
        # A writer died: the next publisher closes the line first.
        with donefile.open("ab") as file:
            file.write(b'{"event": "publish", "vers')
        last = story.base()
        story.wait_live(last)
        story.end(last)
