"""The memory of a search: the values tried and their results, in one append-only file of its directory.

Optuna chooses what to try next and when a run is hopeless; only this module uses it. The file can be read while it is
written, and a killed search resumes from it.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState

from elasticctr.tune.settings import Parameter, TuneSettings

_NAME = "study"


@dataclass(frozen=True, slots=True)
class Tried:
    """One set of values and its result."""

    number: int
    state: str  # complete, pruned, failed, running
    values: Mapping[str, Any]
    score: float | None
    evaluations: Mapping[int, float]
    seconds: float | None
    reason: str | None  # reason of a failure


@dataclass(frozen=True, slots=True)
class StudyResult:
    """The result of a search."""

    study_dir: Path
    best: Tried | None
    tried: list[Tried]
    is_finished: bool


class Study:
    def __init__(self, path: Path, settings: TuneSettings) -> None:
        """Opens the study at `path`, or creates one."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.settings = settings
        self.is_minimised = settings.metric == "logloss"
        self._distributions = {key: _distribution(p) for key, p in settings.space.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study = optuna.create_study(
                storage=JournalStorage(JournalFileBackend(str(path))),
                study_name=_NAME,
                direction="minimize" if self.is_minimised else "maximize",
                sampler=_sampler(settings),
                pruner=_pruner(settings),
                load_if_exists=True,
            )
        self._running: dict[int, Trial] = {}

    def ask(self) -> tuple[int, dict[str, Any]] | None:
        """The number and the values of the next trial; None if there is nothing left to try."""
        if self.settings.sampler == "grid":
            tried = [t.params for t in self._study.get_trials(deepcopy=False)]
            untried = next((point for point in _grid(self._distributions) if point not in tried), None)
            if untried is None:
                return None
            self._study.enqueue_trial(untried)
        trial = self._study.ask(self._distributions)
        self._running[trial.number] = trial
        return trial.number, self._decode(trial.params)

    def report(self, number: int, evaluation: int, value: float) -> bool:
        """Records a validation result of a running trial; True if the trial should be ended."""
        trial = self._running[number]
        trial.report(value, evaluation)
        return self.settings.pruning.kind != "none" and bool(trial.should_prune())

    def tell(self, number: int, score: float) -> None:
        self._study.tell(self._running.pop(number), score)

    def tell_pruned(self, number: int) -> None:
        self._study.tell(self._running.pop(number), state=TrialState.PRUNED)

    def tell_failed(self, number: int, reason: str) -> None:
        trial = self._running.pop(number)
        trial.set_user_attr("reason", reason[:2000])
        self._study.tell(trial, state=TrialState.FAIL)

    def take_over(self) -> list[tuple[int, int, dict[str, Any]]]:
        """Starts again the trials that a killed search left running: (old number, new number, values) of each."""
        left = [t for t in self._study.get_trials(deepcopy=False) if t.state == TrialState.RUNNING]
        taken = []
        for old in left:
            self._study.enqueue_trial(old.params)
            self._study.tell(old.number, state=TrialState.FAIL)
            trial = self._study.ask(self._distributions)
            trial.set_user_attr("goes_on", old.number)
            self._running[trial.number] = trial
            taken.append((old.number, trial.number, self._decode(trial.params)))
        return taken

    def tried(self) -> list[Tried]:
        """All trials so far, in order, except those started again under another number."""
        trials = self._study.get_trials(deepcopy=False)
        replaced = {t.user_attrs["goes_on"] for t in trials if "goes_on" in t.user_attrs}
        return [self._describe(t) for t in trials if t.number not in replaced]

    def best(self) -> Tried | None:
        done = [t for t in self.tried() if t.state == "complete" and t.score is not None]
        return min(done, key=lambda t: (t.score or 0.0) * (1 if self.is_minimised else -1), default=None)

    def importances(self) -> dict[str, float]:
        """The importance of each setting for the results; empty while there are too few trials."""
        if len([t for t in self.tried() if t.state == "complete"]) < 8:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                evaluator = optuna.importance.PedAnovaImportanceEvaluator()
                found = optuna.importance.get_param_importances(self._study, evaluator=evaluator)
            except (ValueError, RuntimeError):  # all values were equal
                return {}
        return {key: float(value) for key, value in found.items()}

    def _describe(self, trial: Any) -> Tried:
        state = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}.get(trial.state.name, "running")
        return Tried(
            trial.number,
            state,
            self._decode(trial.params),
            trial.value if state == "complete" else None,
            dict(trial.intermediate_values),
            trial.duration.total_seconds() if trial.duration is not None else None,
            trial.user_attrs.get("reason"),
        )

    def _decode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        space = self.settings.space
        return {key: json.loads(v) if space[key].choice is not None else v for key, v in params.items()}


def _distribution(parameter: Parameter) -> BaseDistribution:
    if parameter.choice is not None:
        # As text, since Optuna's choices are single values and ours may be lists.
        return CategoricalDistribution([json.dumps(value) for value in parameter.choice])
    if parameter.integer is not None:
        low, high = parameter.integer
        step = int(parameter.step or 1)
        return IntDistribution(low, low + (high - low) // step * step, step=step)
    if parameter.log is not None:
        return FloatDistribution(*parameter.log, log=True)
    low_value, high_value = parameter.uniform or (0.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna lowers an upper bound that is not a multiple of the step
        return FloatDistribution(low_value, high_value, step=parameter.step)


def _sampler(settings: TuneSettings) -> optuna.samplers.BaseSampler:
    if settings.sampler == "tpe":
        # With parallel trials, values near a running trial's count as bad, so that they are not tried twice.
        return optuna.samplers.TPESampler(seed=settings.seed, constant_liar=settings.parallel > 1)
    return optuna.samplers.RandomSampler(seed=settings.seed)


def _grid(distributions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for point in itertools.product(*(_points(d) for d in distributions.values())):
        yield dict(zip(distributions, point, strict=True))


def _points(distribution: Any) -> list[Any]:
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    count = round((distribution.high - distribution.low) / distribution.step)
    return [distribution.low + i * distribution.step for i in range(count + 1)]


def _pruner(settings: TuneSettings) -> optuna.pruners.BasePruner:
    pruning = settings.pruning
    if pruning.kind == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=pruning.startup, n_warmup_steps=pruning.warmup + 1)
    return optuna.pruners.HyperbandPruner() if pruning.kind == "hyperband" else optuna.pruners.NopPruner()
