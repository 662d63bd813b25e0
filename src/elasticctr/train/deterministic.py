"""torch's part of `train.deterministic`: one order of every sum. The native core has no other mode.

What it covers and what it costs is in docs/how-to/train.md.
"""

from __future__ import annotations

import os

import torch
import torch.utils.deterministic

_on_by_us = False


def set_deterministic(is_on: bool) -> None:
    """Switches torch, for this process. Off: only what was switched on here, so that a caller's own choice stays."""
    global _on_by_us
    if is_on:
        # Matrix products that do not depend on where in memory their arguments lie. The first one reads it.
        os.environ.setdefault("MKL_CBWR", "AUTO")
        if not torch.are_deterministic_algorithms_enabled():
            torch.use_deterministic_algorithms(True)
            # Filling memory before it is written over finds bugs of kernels; it makes no result more equal.
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
            _on_by_us = True
    elif _on_by_us:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
        _on_by_us = False
