"""All contenders: the environment of each, and the cells (precision, batch size) in which it runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

THREADS = len(os.sched_getaffinity(0))
# Settings of a user who has read the manuals. Paddle loads two OpenMP runtimes that compete for cores unless one is
# limited to a single thread, and its MKL takes a slow path on AMD by default.
TORCH_SETTINGS = {"OMP_NUM_THREADS": str(THREADS)}
PADDLE_SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": str(THREADS),
    "FLAGS_paddle_num_threads": str(THREADS),
    "CPU_NUM": "1",
    "MKL_DEBUG_CPU_TYPE": "5",
}


@dataclass(frozen=True, order=True)
class Cell:
    precision: str
    batch_size: int

    def __str__(self) -> str:
        return f"{self.precision}_{self.batch_size}"


@dataclass(frozen=True)
class Contender:
    stack: str  # mlp, torch, torchrec, paddle, deepctr, fuxictr or ours
    variant: str
    script: str
    environment: str | None = None  # a name in environments.py; None: the interpreter of the benchmark itself
    precisions: tuple[str, ...] = ("fp32", "bf16")
    settings: dict[str, str] = field(default_factory=lambda: TORCH_SETTINGS)
    is_quick: bool = False
    has_auc: bool = False  # takes part in the check of quality
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.stack} {self.variant}"

    @property
    def is_compiled(self) -> bool:
        return self.variant.endswith("compiled")

    @property
    def is_peer(self) -> bool:
        """Whether it trains the complete model and is not ours."""
        return self.stack not in ("mlp", "ours")


ADAGRAD = "row-wise Adagrad and 12 columns instead of Adam and 9"
ROSTER = (
    Contender("mlp", "eager", "mlp.py", is_quick=True),
    Contender("mlp", "compiled", "mlp.py"),
    Contender("ours", "parsed", "ours.py", is_quick=True, has_auc=True),
    Contender("ours", "cache", "ours.py", is_quick=True),
    Contender("ours", "text", "ours.py", is_quick=True),
    Contender("torch", "dense", "plain_torch.py"),
    Contender("torch", "sparse", "plain_torch.py", is_quick=True, has_auc=True),
    Contender("torch", "bag", "plain_torch.py"),
    Contender("torch", "lazy", "plain_torch.py"),
    Contender("torch", "bag_compiled", "plain_torch.py"),
    Contender("torch", "lazy_compiled", "plain_torch.py"),
    Contender("torchrec", "fused", "torchrec_bags.py", "torchrec", note=ADAGRAD),
    Contender("torchrec", "tbe", "torchrec_bags.py", "torchrec", note=ADAGRAD),
    Contender("paddle", "fused", "paddle_dygraph.py", "paddle", ("fp32",), settings=PADDLE_SETTINGS),
    Contender("deepctr", "wdl", "deepctr_wdl.py", "deepctr", ("fp32",)),
    Contender("fuxictr", "wdl", "fuxictr_wdl.py", "fuxictr", ("fp32",)),
)


def choose(only: Iterable[str], is_quick: bool) -> list[Contender]:
    """The contenders named by stack or by full name; without names, all or the quick ones."""
    wanted = set(only)
    unknown = wanted - {c.stack for c in ROSTER} - {c.name for c in ROSTER}
    if unknown:
        stacks = ", ".join(dict.fromkeys(c.stack for c in ROSTER))
        raise ValueError(f"unknown contender {sorted(unknown)[0]!r}; known: {stacks}, or one variant: 'torch lazy'")
    if wanted:
        return [c for c in ROSTER if c.stack in wanted or c.name in wanted]
    return [c for c in ROSTER if c.is_quick or not is_quick]
