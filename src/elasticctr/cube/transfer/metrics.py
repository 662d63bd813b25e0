"""A transfer's Prometheus metrics."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from elasticctr.cube.transfer.journal import KEPT_HISTORY

if TYPE_CHECKING:
    from elasticctr.cube.transfer.process import TransferProcess


class TransferMetrics(Collector):
    def __init__(self, process: TransferProcess) -> None:
        self._process = process

    def collect(self) -> list[Metric]:
        fleet = self._process.fleet
        leading = GaugeMetricFamily(
            "cube_transfer_leading", "1 unless another transfer holds the agents", fleet.is_leading
        )
        epoch = GaugeMetricFamily("cube_transfer_epoch", "epoch of its lease", fleet.epoch)
        total = GaugeMetricFamily("cube_transfer_instances", "replicas it feeds", len(fleet.instances))
        usable = GaugeMetricFamily("cube_transfer_usable_instances", "replicas that answer", len(fleet.usable()))
        live = GaugeMetricFamily("cube_transfer_live_version", "version to serve", labels=["model"])
        behind = GaugeMetricFamily(
            "cube_transfer_instances_behind", "usable replicas on another version", labels=["model"]
        )
        busy = GaugeMetricFamily("cube_transfer_rollout_seconds", "age of the rollout in progress", labels=["model"])
        took = GaugeMetricFamily("cube_transfer_last_seconds", "how long the last rollout took", labels=["model"])
        outcomes = CounterMetricFamily(
            "cube_transfer_rollouts", f"outcomes of the last {KEPT_HISTORY} rollouts", labels=["model", "outcome"]
        )
        for model, rollout in self._process.models.items():
            journal = rollout.journal
            live.add_metric([model], journal.live)
            others = [one for one in fleet.usable() if _active(one.snapshot.models.get(model)) != journal.live]
            behind.add_metric([model], len(others))
            busy.add_metric([model], time.time() - journal.rollout.started if journal.rollout else 0.0)
            if journal.history:
                took.add_metric([model], journal.history[-1]["finished"] - journal.history[-1]["started"])
            for outcome, count in Counter(one["outcome"] for one in journal.history).items():
                outcomes.add_metric([model, outcome], count)
        return [leading, epoch, total, usable, live, behind, busy, took, outcomes]


def _active(holding: object) -> int:
    return int(getattr(holding, "active", 0))
