"""The environment that torch gets on this machine before it starts."""

from __future__ import annotations

import os
import subprocess
import sys

from elasticctr.models import cpu


def run(code: str, **variables: str) -> str:
    names = ("OMP_WAIT_POLICY", "ONEDNN_MAX_CPU_ISA")
    environment = {k: v for k, v in os.environ.items() if k not in names} | variables
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_features_make_sense_together() -> None:
    found = cpu.cpu_features()
    assert not found["amx_usable"] or (found["amx_bf16"] and found["avx512_bf16"])
    assert not found["avx512"] or found["avx2"]
    assert ("ONEDNN_MAX_CPU_ISA" in cpu.environment()) == found["onednn_amx_broken"]


def test_prepare_before_torch_and_without_it() -> None:
    code = (
        "import os, sys\n"
        "from elasticctr.models.cpu import prepare_torch\n"
        "in_time = prepare_torch()\n"
        "print(in_time, 'torch' in sys.modules, os.environ['OMP_WAIT_POLICY'])"
    )
    assert run(code) == "True False PASSIVE"
    assert run(code, OMP_WAIT_POLICY="ACTIVE") == "True False ACTIVE"


def test_torch_survives_its_own_bf16() -> None:
    code = (
        "from elasticctr.models.cpu import prepare_torch\n"
        "prepare_torch()\n"
        "import torch\n"
        "a = torch.ones(64, 64, dtype=torch.bfloat16)\n"
        "print(torch.mm(a, a)[0, 0].item())"
    )
    assert run(code) == "64.0"
