"""The site's menu: every page is in it, and everything in it is a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
MENU = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
# Taken from the repository's root by tools/site_pages.py, which leaves out those that are not there.
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/report.md", "examples/*")


def entries(menu: Any) -> list[str]:
    if isinstance(menu, str):
        return [menu]
    return [entry for one in (menu.values() if isinstance(menu, dict) else menu) for entry in entries(one)]


def test_every_page_is_in_the_menu_and_every_entry_is_a_page() -> None:
    inside = [entry for entry in entries(MENU) if entry not in OUTSIDE]
    listed = {page for entry in inside for page in DOCS.glob(entry)}
    assert [str(page.relative_to(DOCS)) for page in PAGES if page not in listed] == []
    assert [entry for entry in inside if not list(DOCS.glob(entry))] == []
    assert len(inside) == len(set(inside))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_headings_of_a_page_differ(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ .*$", text, flags=re.MULTILINE)
    assert len(headings) == len(set(headings))
    assert sum(heading.startswith("# ") for heading in headings) == 1


def test_pages_named_in_sources_exist() -> None:
    folders = [ROOT / name for name in ("src", "tests", "tools", "benchmarks", "examples")]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".yaml", ".sh", ".cc")]
    for file in [*files, *(ROOT / name for name in ("Makefile", "CMakeLists.txt", "pyproject.toml"))]:
        for named in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text(encoding="utf-8")):
            assert (ROOT / named).exists(), f"{file.relative_to(ROOT)}: {named}"


def test_nothing_is_fetched_from_other_hosts() -> None:
    for page in PAGES:
        assert not re.search(r"!\[[^\]]*\]\(https?:|src=\"https?:", page.read_text()), page
    for image in (DOCS / "images").glob("*.svg"):
        assert not re.search(r"(?:href|src)=\"https?:|url\(https?:|@import", image.read_text()), image
