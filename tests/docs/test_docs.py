"""Anything undocumented, or documented wrongly, fails the build."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_docs", ROOT / "tools" / "docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tools_docs"] = module
    sys.path.insert(0, str(ROOT / "tools"))
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current(tool: ModuleType) -> None:
    for name, text in tool.make_pages().items():
        assert (ROOT / "docs" / name).read_text() == text, f"docs/{name}: run `make docs`"


def test_every_command_and_option_has_help_and_every_command_an_example(tool: ModuleType) -> None:
    for name, command in tool.commands():
        assert command.help, f"{name} has no help"
        for parameter in command.params:
            assert parameter.help, f"{name}: {parameter.name} has no help"
        if not hasattr(command, "commands"):
            assert "Example" in command.help, f"{name} has no example"
            assert any("--json" in p.opts for p in command.params), f"{name} has no --json"


def test_every_settings_key_has_a_description(tool: ModuleType) -> None:
    for cls in tool.settings_classes():
        for name, field in cls.model_fields.items():
            assert tool.describe(field), f"{cls.__name__}.{name} has no description"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name}: {target} leads nowhere"
        if anchor and found.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", found.read_text(), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name}: no heading for {target}"
