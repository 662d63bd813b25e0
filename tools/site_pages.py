"""A hook of mkdocs: patterns in the menu, and pages that live outside docs/.

Links of pages are those of the repository, so that they work in its web view and in an editor. A link that leaves
docs/ brings its target into the site: Markdown as a page, anything else as a file to open.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/report.md", "examples/*/README.md")
SHIM = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"(?P<head>\]\(|src=\"|srcset=\"|href=\")(?P<path>[^)\s#\":]+)(?P<tail>#[^)\s\"]*)?(?P<end>[)\"])")
_FENCE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, _name(path), abs_src_path=str(path)))
    pages = [file.src_uri for file in files.documentation_pages()]
    config.nav = _expand(config.nav, pages, set(_listed(config.nav)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = Path(page.file.abs_src_path or page.file.src_uri).resolve()
    docs = Path(config.docs_dir).resolve()

    def rewrite(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / match["path"]))
        if target == ROOT / "README.md":
            target = docs / "index.md"
        if target.is_dir():
            target = target / "README.md" if (target / "README.md").exists() else target / "index.md"
        if not target.exists():
            return match[0]
        name = target.relative_to(docs).as_posix() if target.is_relative_to(docs) else _name(target)
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, abs_src_path=str(target)))
        link = posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or ".")
        return f"{match['head']}{link}{match['tail'] or ''}{match['end']}"

    parts = _FENCE.split(markdown)
    return "".join(part if i % 2 else _LINK.sub(rewrite, part) for i, part in enumerate(parts))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A bar in code in a table is written with a backslash, which Python-Markdown would show."""
    return re.sub(r"<code>[^<]*</code>", lambda match: match[0].replace("\\|", "|"), html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Search of pages opened from disk needs a shim, which the theme would fetch from another host."""
    return output.replace(SHIM, posixpath.relpath("worker.js", posixpath.dirname(page.url) or "."))


def _name(path: Path) -> str:
    """Of a file outside docs/ in the site; a README would become the index of its section in the menu."""
    return path.relative_to(ROOT).as_posix().replace("/README.md", ".md")


def _listed(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [name for one in (nav.values() if isinstance(nav, dict) else nav) for name in _listed(one)]


def _expand(nav: Any, pages: list[str], listed: set[str]) -> Any:
    """Patterns become the pages they match that are not listed; entries for pages that are not there go."""
    if isinstance(nav, dict):
        return {name: _expand(one, pages, listed) for name, one in nav.items()}
    if isinstance(nav, str):
        return _matches(nav, pages, listed) if "*" in nav else nav
    shown: list[Any] = []
    for one in nav:
        if isinstance(one, str) and "*" in one:
            shown += _matches(one, pages, listed)
        elif one not in OUTSIDE or one in pages:
            shown.append(_expand(one, pages, listed))
    return shown


def _matches(pattern: str, pages: list[str], listed: set[str]) -> list[str]:
    folder = pattern.removesuffix("*")
    return sorted(page for page in pages if page.startswith(folder) and page not in listed)
