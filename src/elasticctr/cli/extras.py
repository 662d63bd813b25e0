"""What a command says when it needs a package that a plain install leaves out."""

from __future__ import annotations

from elasticctr.errors import FailedPrecondition
from elasticctr.obs.machine import EXTRAS

_ACTIVITIES = {
    "demo": "the demo",
    "eval": "evaluation",
    "explain": "explaining",
    "predict": "offline prediction",
    "publish": "publishing",
    "pserver": "training",
    "report": "the report",
    "train": "training",
    "trainer": "training",
    "tune": "tuning",
}


def explain_missing(error: ModuleNotFoundError, command: str | None) -> FailedPrecondition | None:
    """The error a user sees, naming the extra; None if the module belongs to none."""
    package = (error.name or "").partition(".")[0].replace("_", "-")
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
    if extra is None:
        return None
    extra = "tune" if command == "tune" else extra  # which brings what training needs
    activity = _ACTIVITIES.get(command or "", "this")
    return FailedPrecondition(f"{activity} needs {package}: pip install 'elasticctr[{extra}]'")
