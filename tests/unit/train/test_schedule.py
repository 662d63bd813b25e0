"""Warm-up, early stopping and plateaus follow their definitions."""

from elasticctr.train.job import EarlyStopping, Plateau, TrainSettings
from elasticctr.train.schedule import Schedule


def see(schedule: Schedule, *values: float | None) -> list[bool]:
    return [schedule.see_evaluation({"auc": v, "logloss": v}) for v in values]


def test_warmup_rises_to_one_and_stays() -> None:
    schedule = Schedule(TrainSettings(warmup_steps=4))
    assert [schedule.lr_scale(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_early_stopping_counts_evaluations_without_improvement() -> None:
    schedule = Schedule(TrainSettings(early_stopping=EarlyStopping(patience=2)))
    assert see(schedule, 0.7, 0.71) == [True, True]
    see(schedule, 0.70)
    assert not schedule.should_stop
    see(schedule, 0.705)
    assert schedule.should_stop


def test_logloss_improves_downwards() -> None:
    schedule = Schedule(TrainSettings(early_stopping=EarlyStopping(metric="logloss", patience=1)))
    assert see(schedule, 0.5, 0.4, 0.45) == [True, True, False]
    assert schedule.should_stop


def test_an_improvement_below_min_delta_does_not_reset_patience_but_is_the_best() -> None:
    schedule = Schedule(TrainSettings(early_stopping=EarlyStopping(patience=1, min_delta=0.01)))
    assert see(schedule, 0.70, 0.705) == [True, True]
    assert schedule.should_stop


def test_plateau_scales_down_to_its_floor() -> None:
    schedule = Schedule(TrainSettings(plateau=Plateau(factor=0.1, patience=1, min_scale=0.05)))
    see(schedule, 0.7)
    assert schedule.lr_scale(0) == 1.0
    see(schedule, 0.7)
    assert schedule.lr_scale(0) == 0.1
    see(schedule, 0.7)
    assert schedule.lr_scale(0) == 0.05


def test_an_undefined_metric_counts_as_no_improvement() -> None:
    schedule = Schedule(TrainSettings(early_stopping=EarlyStopping(patience=1)))
    assert see(schedule, None) == [False]
    assert schedule.should_stop


def test_restored_schedule_decides_like_the_original() -> None:
    settings = TrainSettings(early_stopping=EarlyStopping(patience=3), plateau=Plateau(patience=2))
    original, restored = Schedule(settings), Schedule(settings)
    see(original, 0.7, 0.69)
    restored.restore(original.state())
    for value in (0.68, 0.67):
        assert see(original, value) == see(restored, value)
        assert original.lr_scale(9) == restored.lr_scale(9)
        assert original.should_stop == restored.should_stop


def test_a_chosen_label_decides() -> None:
    stopping, plateau = EarlyStopping(patience=2, label="buy"), Plateau(factor=0.5, patience=1, label="click")
    schedule = Schedule(TrainSettings(early_stopping=stopping, plateau=plateau))
    results = [(0.7, 0.6), (0.8, 0.5), (0.75, 0.4)]  # click, buy
    best = [
        schedule.see_evaluation({"auc": click, "labels": {"click": {"auc": click}, "buy": {"auc": buy}}})
        for click, buy in results
    ]
    assert best == [True, False, False]
    assert schedule.should_stop
    assert schedule.lr_scale(0) == 0.5
