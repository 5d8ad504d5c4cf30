"""EventBridge Scheduler in the world: moto's schedules, which reach their targets on the virtual clock.

    schedules = Schedules(clock, events, ACCOUNT, REGION, READING)
    schedules.run()                                          # every schedule comes at its times, until the clock is reset
    next_time("cron(30 3 ? * SUN *)", "Europe/Berlin", now)  # in UTC

Source of the expressions and of the variables in an input: EventBridge Scheduler user guide, "Schedule types" and "Context
attributes". A schedule with a rate counts from the start of the scenario, and first runs one interval later.

Not supported: flexible windows, start and end dates, L, W and # in cron, deletion after completion, retries.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from moto.scheduler.models import Schedule, scheduler_backends

from world.aws.events import Events, fill_template
from world.base.clock import Clock

#: A cron expression without a time in this many days has none.
_FAR = 5 * 366

_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
_DAYS = "SUN MON TUE WED THU FRI SAT".split()


class Schedules:
    """The schedules of one account and region."""

    def __init__(
        self, clock: Clock, events: Events, account: str, region: str, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self._clock = clock
        self._events = events
        self._account, self._region = account, region
        self._lock = lock or contextlib.nullcontext()

    def run(self) -> None:
        """Runs every enabled schedule at its times from now on."""
        with self._lock:
            groups = scheduler_backends[self._account][self._region].schedule_groups.values()
            enabled = [each for group in groups for each in group.schedules.values() if each.state == "ENABLED"]
        for schedule in enabled:
            self._plan(schedule)

    def _plan(self, schedule: Schedule) -> None:
        began, now = (datetime.fromtimestamp(moment, UTC) for moment in (self._clock.start, self._clock.now()))
        due = next_time(schedule.schedule_expression, schedule.schedule_expression_timezone, now, began)
        if due is not None:
            self._clock.at(due.timestamp() - self._clock.start, lambda: self._come(schedule, due))

    def _come(self, schedule: Schedule, due: datetime) -> None:
        words = {
            "aws.scheduler.schedule-arn": schedule.arn,
            "aws.scheduler.scheduled-time": due.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "aws.scheduler.execution-id": f"{schedule.name}-{due.timestamp():.0f}",
            "aws.scheduler.attempt-number": "1",
        }
        text = fill_template(schedule.target["Input"], words)
        group = schedule.arn.replace(":schedule/", ":schedule-group/").rpartition("/")[0]
        service, role = "scheduler.amazonaws.com", schedule.target["RoleArn"]
        self._events.send(schedule.arn, schedule.target["Arn"], text, service, group, role)
        self._plan(schedule)


def next_time(expression: str, timezone: str, after: datetime, began: datetime | None = None) -> datetime | None:
    """The first time of a schedule after a moment, in UTC; None if there is none. A rate counts from when it `began`."""
    kind, _, rest = expression.partition("(")
    given = rest.removesuffix(")")
    if kind == "rate":
        return _next_of_rate(given, after, began or after)
    zone = ZoneInfo(timezone)
    if kind == "at":
        due = datetime.fromisoformat(given).replace(tzinfo=zone).astimezone(UTC)
        return due if due > after else None
    if kind == "cron":
        return next((due for due in _times_of_cron(given, zone, after.astimezone(zone).date()) if due > after), None)
    raise ValueError(f"a schedule is rate(…), at(…) or cron(…), not {expression}")


def _next_of_rate(given: str, after: datetime, began: datetime) -> datetime:
    found = re.fullmatch(r"(\d+) (minute|hour|day)s?", given)
    if found is None:
        raise ValueError(f"a rate is a number of minutes, hours or days, not {given}")
    interval = int(found[1]) * timedelta(**{f"{found[2]}s": 1})
    return began + interval * ((after - began) // interval + 1)


def _times_of_cron(given: str, zone: ZoneInfo, first: date) -> Iterator[datetime]:
    """Returns its times from a day on. If a clock change skips a time, it is left out; if it repeats a time, the time comes
    once."""
    minute, hour, day_of_month, month, day_of_week, year = given.split()
    minutes, hours = _values(minute, 0, 59), _values(hour, 0, 23)
    days, months, weekdays = _values(day_of_month, 1, 31), _values(month, 1, 12, _MONTHS), _values(day_of_week, 1, 7, _DAYS)
    years = _values(year, 1970, 2199)
    for day in (first + timedelta(days=number) for number in range(_FAR)):
        # Sunday is 1.
        weekday = day.isoweekday() % 7 + 1
        if not (day.year in years and day.month in months and day.day in days and weekday in weekdays):
            continue
        for at in (time(each_hour, each_minute) for each_hour in sorted(hours) for each_minute in sorted(minutes)):
            due = datetime.combine(day, at, zone).astimezone(UTC)
            if due.astimezone(zone).time() == at:
                yield due


def _values(field: str, least: int, most: int, names: list[str] | None = None) -> set[int]:
    """The numbers that a field of a cron expression stands for."""
    for number, name in enumerate(names or [], start=1):
        field = field.replace(name, str(number))
    values: set[int] = set()
    for part in field.split(","):
        found = re.fullmatch(r"(?:[*?]|(\d+)(?:-(\d+))?)(?:/(\d+))?", part)
        if found is None:
            raise ValueError(f"{part} in a cron expression is not part of the world")
        begin = int(found[1] or least)
        is_open = found[1] is None or (found[3] and not found[2])
        end = int(found[2] or (most if is_open else begin))
        values |= set(range(begin, end + 1, int(found[3] or 1)))
    return values
