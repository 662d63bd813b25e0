"""A date tree names every day or hour from its first to its last, and nothing else is one."""

from __future__ import annotations

import pytest

from elasticctr.errors import ConfigError
from elasticctr.storage.dates import DatePart, expand, is_date_tree


def names(location: str, start: str, end: str) -> list[str]:
    return [part.date for part in expand(location, start, end)]


def test_days_go_over_the_end_of_a_leap_february() -> None:
    assert names("logs/{date}", "20200228", "20200301") == ["20200228", "20200229", "20200301"]
    assert names("logs/{date}", "2021-02-28", "2021-03-01") == ["20210228", "20210301"]


def test_hours_go_over_midnight_and_both_ends_are_included() -> None:
    assert names("logs/{date}/{hour}", "20200401/22", "20200402/01") == [
        "20200401/22",
        "20200401/23",
        "20200402/00",
        "20200402/01",
    ]


def test_a_day_of_an_hourly_tree_is_all_its_hours() -> None:
    found = names("logs/{date}/{hour}", "20200401", "20200402")
    assert (len(found), found[0], found[-1]) == (48, "20200401/00", "20200402/23")
    assert names("logs/{date}/{hour}", "20200401/05", "20200401")[0] == "20200401/05"


def test_the_directory_is_the_last_one_with_a_field() -> None:
    (part,) = expand("hdfs://x/{date:%Y-%m-%d}/h{hour}-a/part-*", "20200401/07", "20200401/07")
    location = "hdfs://x/2020-04-01/h07-a/part-*"
    assert part == DatePart("20200401/07", location, "hdfs://x/2020-04-01/h07-a")


def test_what_has_a_field_is_a_date_tree() -> None:
    assert is_date_tree("logs/{date}") and is_date_tree("logs/{hour:%I}")
    assert not is_date_tree("logs/{day}") and not is_date_tree("logs/2020")


@pytest.mark.parametrize(
    ("location", "start", "end"),
    [
        ("logs/{hour}", "20200401/00", "20200401/01"),
        ("logs/{date}", None, "20200401"),
        ("logs/{date}", "20200401", None),
        ("logs/{date}", "20200402", "20200401"),
        ("logs/{date}", "20200401/00", "20200402"),
        ("logs/{date}", "20200230", "20200301"),
        ("logs/{date}/{hour}", "20200401/24", "20200402"),
        ("logs/{date}/{hour}", "20200401/x", "20200402"),
        ("logs/{date}", "", "20200402"),
    ],
)
def test_what_is_no_range_of_days_is_a_config_error(location: str, start: str | None, end: str | None) -> None:
    with pytest.raises(ConfigError):
        expand(location, start, end)
