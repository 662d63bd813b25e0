"""Sets torch up for this CPU and the native thread pool. Does not import torch.

Everything that starts training calls `prepare_torch` before the first `import torch`; after that, some settings no
longer take effect.
"""

from __future__ import annotations

import os
import sys

from elasticctr import _native


def cpu_features() -> dict[str, bool]:
    """What this CPU supports, as probed by the native core: see native/util/cpu.h."""
    return dict(_native.cpu_features())


def environment() -> dict[str, str]:
    """The environment variables torch should start with on this machine. The user's own values take precedence."""
    settings = {
        # OpenMP workers that spin after each parallel region hold the cores the native pool needs next.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    if cpu_features()["onednn_amx_broken"]:
        # The CPU advertises tiles but hides their palette: oneDNN would crash in its first bf16 product.
        settings["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
    return settings


def prepare_torch() -> bool:
    """Sets the variables that are not set yet. False if torch was already imported and may not see them."""
    for name, value in environment().items():
        os.environ.setdefault(name, value)
    return "torch" not in sys.modules
