"""Date-partitioned trees: `logs/{date}/{hour}` or `logs/{date}` with a first and a last day or hour.

`{date}` stands for 20200401 and `{hour}` for 00 to 23; `{date:%Y-%m-%d}` gives a day another format. An hour that is
missing or unfinished is an error or waited for, never skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from elasticctr.errors import ConfigError

_FIELD = re.compile(r"\{(date|hour)(?::([^{}]+))?\}")


def is_date_tree(location: str) -> bool:
    return _FIELD.search(location) is not None


@dataclass(frozen=True, slots=True)
class DatePart:
    """One day or hour of a date tree."""

    date: str  # 20200401 or 20200401/00
    location: str
    directory: str  # holds its donefile


def expand(location: str, start: str | None, end: str | None) -> list[DatePart]:
    """Every day or hour from `start` to `end`, both included, in order."""
    fields = {match[1] for match in _FIELD.finditer(location)}
    if "date" not in fields:
        raise ConfigError(f"{location}: a date tree needs {{date}}, with {{hour}} after it if there is one per hour")
    if start is None or end is None:
        raise ConfigError(f"{location}: a date tree needs start and end, for example 20200401/00 and 20200401/23")
    hourly = "hour" in fields
    first = _parse(start, hourly, last_hour=False)
    last = _parse(end, hourly, last_hour=True)
    if last < first:
        raise ConfigError(f"{location}: end {end} is before start {start}")
    step = timedelta(hours=1) if hourly else timedelta(days=1)
    moments = [first + i * step for i in range(int((last - first) / step) + 1)]
    # Anything after the last field's own directory, such as part-*, is inside the day or hour.
    after = max(match.end() for match in _FIELD.finditer(location))
    directory = location[:after] + location[after:].partition("/")[0]
    name = "%Y%m%d/%H" if hourly else "%Y%m%d"
    return [DatePart(moment.strftime(name), _write(location, moment), _write(directory, moment)) for moment in moments]


def _write(location: str, moment: datetime) -> str:
    def write(match: re.Match[str]) -> str:
        return moment.strftime(match[2] or ("%Y%m%d" if match[1] == "date" else "%H"))

    return _FIELD.sub(write, location)


def _parse(text: str, hourly: bool, *, last_hour: bool) -> datetime:
    day, _, hour = text.strip().partition("/")
    if hour and not hourly:
        raise ConfigError(f"{text!r}: this date tree has no {{hour}}; give a day such as 20200401")
    try:
        moment = datetime.strptime(day.replace("-", ""), "%Y%m%d")
        if hour:
            return moment.replace(hour=int(hour))
    except ValueError:
        raise ConfigError(f"{text!r} is not a day or an hour such as 20200401 or 20200401/00") from None
    return moment.replace(hour=23) if hourly and last_hour else moment
