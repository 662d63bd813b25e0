"""Observations of a run, every tenth of a second, and results from them: samples learned from, trainers' running time,
and the cost of each event. Used by elastic.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Moment:
    at_s: float
    samples: int  # in the model; fewer after a rollback
    there: int  # trainers whose processes run
    working: int  # trainers that have work


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of the event at `start_s`, until the next one. In seconds of one trainer, except for the pause."""

    what: str
    possible: float
    lost: float
    starting: float  # part of the loss: trainers that run but have no work yet
    pause_s: float  # the longest time without a new report


@dataclass
class Timeline:
    seen: list[Moment] = field(default_factory=list)

    def samples(self, start_s: float, end_s: float) -> float:
        return self._samples_at(end_s) - self._samples_at(start_s)

    def _samples_at(self, at_s: float) -> float:
        """Interpolates between two observations."""
        for a, b in pairwise(self.seen):
            if a.at_s <= at_s < b.at_s:
                return a.samples + (b.samples - a.samples) * (at_s - a.at_s) / (b.at_s - a.at_s)
        return float(self.seen[-1].samples)

    def trainer_seconds(self, start_s: float, end_s: float) -> float:
        return sum(a.there * seconds for a, seconds in self._stretches(start_s, end_s))

    def starting_seconds(self, start_s: float, end_s: float) -> float:
        return sum(max(a.there - a.working, 0) * seconds for a, seconds in self._stretches(start_s, end_s))

    def _stretches(self, start_s: float, end_s: float) -> Iterator[tuple[Moment, float]]:
        for a, b in pairwise(self.seen):
            seconds = min(b.at_s, end_s) - max(a.at_s, start_s)
            if seconds > 0:
                yield a, seconds

    def longest_pause_s(self, start_s: float, end_s: float) -> float:
        """The longest time without newly learned samples."""
        longest, most, since_s = 0.0, -1, start_s
        for moment in self.seen:
            if start_s <= moment.at_s <= end_s:
                if moment.samples > most:
                    most, since_s = moment.samples, moment.at_s
                longest = max(longest, moment.at_s - since_s)
        return longest

    def cost(self, what: str, pace: float, start_s: float, end_s: float) -> Cost:
        possible = self.trainer_seconds(start_s, end_s)
        lost = possible - self.samples(start_s, end_s) / pace
        return Cost(what, possible, lost, self.starting_seconds(start_s, end_s), self.longest_pause_s(start_s, end_s))
