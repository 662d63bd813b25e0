"""Makes torch get along with this CPU and with the native thread pool. Importable before torch, and meant to be.

`prepare_torch` is called by whatever starts training before the first `import torch`; later it is too late for some of
its settings, which it then leaves alone.
"""

from __future__ import annotations

import os
import sys

from elasticctr import _native


def cpu_features() -> dict[str, bool]:
    """What this CPU can do, as probed by the native core: see native/dense/cpu.h."""
    return dict(_native.cpu_features())


def environment() -> dict[str, str]:
    """The environment variables torch should start with here. Ones the user has set win."""
    settings = {
        # OpenMP workers that spin after each parallel region hold the cores the native pool needs next.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    if cpu_features()["onednn_amx_broken"]:
        # The CPU advertises tiles but hides their palette: oneDNN would die in its first bf16 product.
        settings["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
    return settings


def prepare_torch() -> bool:
    """Sets what is not set yet. False if torch was imported before, when the settings no longer reach it."""
    for name, value in environment().items():
        os.environ.setdefault(name, value)
    return "torch" not in sys.modules
