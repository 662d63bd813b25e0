"""Donefiles of Paddle's Cube: which version is wanted, and on which chain it stands."""

from __future__ import annotations

import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from elasticctr import _native
from elasticctr.compat.paddle_cube.feed import PaddleBuilder, PaddleFeed, list_page
from elasticctr.cube.transfer.settings import BuildSettings
from elasticctr.errors import NotFound
from elasticctr.obs.watch import Watch

KEYS = np.arange(1, 101, dtype=np.uint64)


def write_text(path: Path, keys: np.ndarray, value: float) -> None:
    path.mkdir(parents=True)
    (path / "part-0").write_text("".join(f"{key}:{value} {value}\n" for key in keys))


def line(number: int, key: int, path: Path) -> str:
    return f'{{"id":"{number}","key":"{key}","input":"{path}"}}\n'


@pytest.fixture
def donefiles(tmp_path: Path) -> Path:
    """A base and two patches, as announced by Paddle's tools."""
    for name, keys, value in (("base", KEYS, 1.0), ("one", KEYS[:10], 2.0), ("two", KEYS[5:15], 3.0)):
        write_text(tmp_path / name, keys, value)
    (tmp_path / "base.txt").write_text(line(100, 100, tmp_path / "base"))
    patches = line(101, 100, tmp_path / "one") + "\nnonsense\n" + line(102, 100, tmp_path / "two")
    (tmp_path / "patch.txt").write_text(patches + line(103, 100, tmp_path / "three").rstrip("\n"))
    return tmp_path


def test_patches_depend_on_each_other_and_the_last_finished_one_is_wanted(donefiles: Path) -> None:
    feed = PaddleFeed(str(donefiles))
    wanted = feed.wanted("d")
    assert wanted is not None and wanted.version == 102
    links = feed.chain("d", 102)
    assert [(link.version, link.parent) for link in links] == [(100, 0), (101, 100), (102, 101)]
    assert links[-1].identity == wanted.identity
    with pytest.raises(NotFound, match="no line with id 103"):
        feed.chain("d", 103)


def test_base_only_looks_at_bases(donefiles: Path) -> None:
    wanted = PaddleFeed(str(donefiles), with_patches=False).wanted("d")
    assert wanted is not None and wanted.version == 100


def test_a_new_base_starts_a_new_chain_and_late_patches_of_the_old_one_do_not_count(donefiles: Path) -> None:
    feed = PaddleFeed(str(donefiles))
    assert feed.wanted("d") is not None
    with (donefiles / "base.txt").open("a") as file:
        file.write(line(200, 200, donefiles / "base"))
    wanted = feed.wanted("d")
    assert wanted is not None and wanted.version == 200
    with (donefiles / "patch.txt").open("a") as file:
        file.write(
            "\n"
            + line(201, 100, donefiles / "one")
            + line(150, 200, donefiles / "one")
            + line(202, 200, donefiles / "two")
        )
    wanted = feed.wanted("d")
    assert wanted is not None and wanted.version == 202
    assert [link.version for link in feed.chain("d", 202)] == [200, 202]


def test_nothing_announced_is_nothing(tmp_path: Path) -> None:
    assert PaddleFeed(str(tmp_path)).wanted("d") is None


@pytest.mark.parametrize("compact", [False, True])
def test_rows_are_the_files_rows_by_modulo(donefiles: Path, tmp_path: Path, compact: bool) -> None:
    feed = PaddleFeed(str(donefiles))
    builder = PaddleBuilder(feed, BuildSettings(sharding="modulo"), 2)
    out = tmp_path / "out"
    links = feed.chain("d", 102)
    store = _native.CubeStore.make("memory", True)
    for link in links[-1:] if compact else links:
        builder.build("d", link, out, compact=compact, watch=Watch(30))
        path = out / "d" / str(link.version) / "shard-0001-of-0002" / "embedding.cube"
        store.load("d", link.version, 0 if compact else link.parent, [("embedding", str(path))])
    store.activate("d", 102)
    odd = KEYS[KEYS % 2 == 1]
    rows, found, version = store.lookup("d/embedding", odd)[:3]
    values = np.ascontiguousarray(rows).view(np.float32).reshape(len(odd), 2)
    expected = np.where((odd > 5) & (odd <= 15), 3.0, np.where(odd <= 10, 2.0, 1.0))
    assert version == 102 and found.all()
    np.testing.assert_array_equal(values, np.stack([expected, expected], axis=1).astype(np.float32))


def test_a_directory_over_http_is_read_from_its_page(tmp_path: Path) -> None:
    """Rows on a static file server, where Paddle's installations put them."""
    write_text(tmp_path / "data/base", KEYS[:60], 1.0)
    (tmp_path / "data/base/part-1").write_text("".join(f"{key}:4 4\n" for key in KEYS[60:]))
    (tmp_path / "donefile").mkdir()
    (tmp_path / "donefile/base.txt").write_text('{"id":"7","key":"7","input":"/data/base"}\n')
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        feed = PaddleFeed(f"http://127.0.0.1:{host.server_port}/donefile/")
        wanted = feed.wanted("d")
        assert wanted is not None and wanted.version == 7
        [link] = feed.chain("d", 7)
        PaddleBuilder(feed, BuildSettings(), 1).build("d", link, tmp_path / "out", compact=False, watch=Watch(30))
        host.shutdown()
    store = _native.CubeStore.make("memory", True)
    store.load("d", 7, 0, [("embedding", str(tmp_path / "out/d/7/shard-0000-of-0001/embedding.cube"))])
    store.activate("d", 7)
    rows, found, _ = store.lookup("d/embedding", KEYS)[:3]
    values = np.ascontiguousarray(rows).view(np.float32).reshape(100, 2)[:, 0]
    assert found.all()
    np.testing.assert_array_equal(values, np.where(KEYS <= 60, 1.0, 4.0).astype(np.float32))


def test_links_that_lead_elsewhere_are_not_followed() -> None:
    page = '<a href="part-0">x</a><a href="../up">x</a><a href="/root">x</a><a href="http://evil/x">x</a>'
    page += '<a href=\'part-1\'>x</a><a href="%2e%2e">x</a><a href="sub/">x</a><a href=".hidden">x</a>'

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{host.server_port}/dir"
        assert list_page(url) == [f"{url}/part-0", f"{url}/part-1"]
        host.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return
