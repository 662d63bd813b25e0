"""Exit statuses say whether another try can help, and what happened in words."""

from __future__ import annotations

import signal

import pytest

from elasticctr import errors
from elasticctr.cluster.exits import explain_exit, is_worth_another_try

LASTING = (
    errors.ConfigError,
    errors.DataError,
    errors.NotFound,
    errors.AlreadyExists,
    errors.Corruption,
    errors.FailedPrecondition,
    errors.Unauthorized,
)
PASSING = (errors.Unavailable, errors.DeadlineExceeded, errors.InternalError)


@pytest.mark.parametrize("error", LASTING)
def test_a_mistake_that_stays_is_not_tried_again(error: type[errors.ElasticCTRError]) -> None:
    assert not is_worth_another_try(error.exit_status)
    assert error.__name__ in explain_exit(error.exit_status)


@pytest.mark.parametrize("error", PASSING)
def test_what_may_pass_is_tried_again(error: type[errors.ElasticCTRError]) -> None:
    assert is_worth_another_try(error.exit_status)
    assert error.__name__ in explain_exit(error.exit_status)


def test_success_usage_and_missing_programs_are_final() -> None:
    assert not any(is_worth_another_try(status) for status in (0, 2, 126, 127))
    assert is_worth_another_try(1) and is_worth_another_try(99)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_signal_is_named_by_both_ways_to_report_it(number: signal.Signals) -> None:
    for status in (-number, 128 + number):
        assert is_worth_another_try(status)
        assert f"killed by {number.name}" in explain_exit(status)
    assert ("memory" in explain_exit(-number)) == (number is signal.SIGKILL)


def test_a_number_that_is_no_signal_is_shown() -> None:
    assert "signal 100" in explain_exit(-100)
