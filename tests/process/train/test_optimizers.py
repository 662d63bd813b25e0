"""Training starts without loading torch's compiler."""

from __future__ import annotations

import subprocess
import sys

STEP = """
import sys, torch
from elasticctr.train.job import DenseSettings
from elasticctr.train.optimizers import make_optimizer
w = torch.nn.Parameter(torch.ones(3))
optimizer = make_optimizer([w], DenseSettings(optimizer="adam", learning_rate=0.5))
w.grad = torch.ones(3)
optimizer.step()
optimizer.load_state_dict(optimizer.state_dict())
optimizer.zero_grad()
assert torch.allclose(w, torch.full((3,), 0.5)), w
assert "torch._dynamo" not in sys.modules
"""


def test_the_compiler_is_not_loaded_to_train() -> None:
    done = subprocess.run([sys.executable, "-c", STEP], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
