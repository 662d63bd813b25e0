"""Every listener and every trusted input is on the security page."""

from __future__ import annotations

from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.promise(
    "a job file or a custom model from a stranger",
    "no protection: both are code, and the documentation says so",
)
def test_what_is_trusted_is_said_where_it_is_used() -> None:
    security = (DOCS / "operations" / "security.md").read_text(encoding="utf-8")
    trusted = security.partition("## What is trusted")[2].partition("\n## ")[0]
    for word in ("job files", "custom models", "repository", "cube.yaml", "logs", "bytes from the network"):
        assert word in trusted, word
    assert "security.md" in (DOCS / "how-to" / "custom-model.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["serve", "cube server", "cube agent", "cube transfer", "coordinator", "pserver"])
def test_every_listener_has_a_row(command: str) -> None:
    security = (DOCS / "operations" / "security.md").read_text(encoding="utf-8")
    assert f"| `elasticctr {command}`" in security
