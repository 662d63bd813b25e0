"""A publisher killed at any change leaves a repository that the next one continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.unit.publish.story import Story, digest, make_old

from elasticctr.publish import dense as dense_side
from elasticctr.publish.publisher import Publisher
from elasticctr.storage.store import LocalStore
from elasticctr.versions import Repository


class Killed(BaseException):
    """The process is dead: nothing after it happens, clean-up neither."""


class MortalStore(LocalStore):
    """Dies at its n-th change, before or after making it; every later change is not made."""

    def __init__(self, root: str, at: int, after: bool) -> None:
        super().__init__(root)
        self.left, self.after, self.changes = at, after, 0

    def _step(self, change: Any) -> Any:
        self.changes += 1
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.after):
            raise Killed
        result = change()
        if self.left == 0:
            raise Killed
        return result

    @contextmanager
    def create(self, name: str) -> Iterator[Any]:
        entering = super().create(name)
        if self.left <= 1 and not self.after:
            self._step(lambda: None)
        with entering as file:
            yield file
        self._step(lambda: None)

    def write_bytes(self, name: str, data: bytes) -> None:
        self._step(lambda: LocalStore.write_bytes(_plain(self), name, data))

    def write_new(self, name: str, data: bytes) -> bool:
        return bool(self._step(lambda: LocalStore.write_new(self, name, data)))

    def append(self, name: str, data: bytes) -> None:
        self._step(lambda: LocalStore.append(self, name, data))

    def delete(self, name: str) -> None:
        self._step(lambda: LocalStore.delete(self, name))

    def delete_tree(self, name: str) -> None:
        self._step(lambda: LocalStore.delete_tree(self, name))


def _plain(store: LocalStore) -> LocalStore:
    return LocalStore(store.url)


@pytest.mark.parametrize("after", [False, True])
def test_a_publisher_killed_at_every_step(story: Story, template: dense_side.GraphTemplate, after: bool) -> None:
    story.learn()
    story.publish()
    expected = {1: digest(story.published(1))}
    url = story.repository.url
    for at in range(1, 100):
        story.learn(1)
        store = MortalStore(url, at, after)
        mortal = Publisher(Repository(url, store), "ctr", reuse_graph=True, keep=3)
        mortal._template = template
        is_dead = False
        try:
            story.publish(publisher=mortal)
        except Killed:
            is_dead = True
        live = story.repository.live("ctr").version
        assert digest(story.published(live)) == expected.get(live, digest(story.trained()))
        if live not in expected:
            assert live > max(expected)
            expected[live] = digest(story.trained())
        # The dead process' lock must not stand in the way, whoever checks: this one lives on under the same pid.
        story.repository.store.delete("ctr/publisher.lock")
        make_old(Path(url, "ctr"))
        manifest = story.publish("base" if live == max(expected) and at % 2 else "auto") if is_dead else None
        if manifest is not None:
            expected[manifest.version] = digest(story.trained())
            there = {p for p in Path(url, "ctr").iterdir() if p.name.isdigit()}
            known = {str(m.version) for m in story.repository.versions("ctr")}
            assert known <= {p.name for p in there}
            assert all((p / "manifest.json").exists() for p in there)
        else:
            break
    assert not is_dead and at > 8
    for found in story.repository.versions("ctr"):
        assert digest(story.published(found.version)) == expected[found.version]
