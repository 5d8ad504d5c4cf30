"""The Scheduler: when schedules come, and what their targets get."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from world.aws.schedules import Schedules, next_time
from world_tests.moto_region import ACCOUNT, REGION, ROLE, MotoRegion

WAIT = {"QueryLanguage": "JSONata", "StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 1, "End": True}}}


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# 2027-01-01 is a Friday; in Berlin clocks go forward on 2027-03-28 at 2:00, and back on 2027-10-31 at 3:00.
@pytest.mark.parametrize(
    ("expression", "zone", "after", "expected"),
    [
        ("rate(1 hour)", "UTC", "2027-01-01T02:30:00", "2027-01-01T03:00:00"),
        ("rate(7 days)", "UTC", "2027-01-08T00:00:00", "2027-01-15T00:00:00"),
        ("at(2027-01-02T03:00:00)", "UTC", "2027-01-01T00:00:00", "2027-01-02T03:00:00"),
        ("at(2027-07-02T03:00:00)", "America/New_York", "2027-01-01T00:00:00", "2027-07-02T07:00:00"),
        ("at(2027-01-02T03:00:00)", "UTC", "2027-01-02T03:00:00", None),
        ("cron(0 3 * * ? *)", "UTC", "2027-01-01T03:00:00", "2027-01-02T03:00:00"),
        ("cron(30 3 ? * SUN *)", "Europe/Berlin", "2027-01-01T00:00:00", "2027-01-03T02:30:00"),
        ("cron(0/20 8-9 ? * MON-FRI *)", "UTC", "2027-01-01T08:30:00", "2027-01-01T08:40:00"),
        ("cron(0 0 1 JAN,JUL ? *)", "UTC", "2027-01-01T00:00:00", "2027-07-01T00:00:00"),
        ("cron(0 0 ? * 1 *)", "UTC", "2027-01-01T00:00:00", "2027-01-03T00:00:00"),
        ("cron(0 0 * * ? 2026)", "UTC", "2027-01-01T00:00:00", None),
        ("cron(30 2 * * ? *)", "Europe/Berlin", "2027-03-27T12:00:00", "2027-03-29T00:30:00"),
        ("cron(30 2 * * ? *)", "Europe/Berlin", "2027-10-30T12:00:00", "2027-10-31T00:30:00"),
        ("cron(30 2 * * ? *)", "Europe/Berlin", "2027-10-31T00:30:00", "2027-11-01T01:30:00"),
    ],
)
def test_when_a_schedule_comes_next(expression: str, zone: str, after: str, expected: str | None):
    found = next_time(expression, zone, utc(after), utc("2027-01-01T00:00:00"))
    assert found == (utc(expected) if expected else None)


@pytest.mark.parametrize("expression", ["every day", "rate(1 week)", "cron(0 0 L * ? *)", "cron(0 0 ? * 2#1 *)"])
def test_an_unknown_expression_is_refused(expression: str):
    with pytest.raises(ValueError, match="a schedule is|a rate is|not part of the world"):
        next_time(expression, "UTC", utc("2027-01-01T00:00:00"))


@pytest.fixture
def schedules(region: MotoRegion) -> Schedules:
    return Schedules(region.clock, region.events, ACCOUNT, REGION)


def create(region: MotoRegion, name: str, **options: Any) -> str:
    arn = region.create("m", WAIT)
    given = '{"id": "<aws.scheduler.schedule-arn> <aws.scheduler.scheduled-time>", "try": "<aws.scheduler.attempt-number>"}'
    region.client("scheduler").create_schedule(
        Name=name,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn, "RoleArn": ROLE, "Input": given},
        **{"ScheduleExpression": "rate(1 hour)", **options},
    )
    return arn


def test_a_schedule_starts_its_machine_at_each_of_its_times_with_its_words_filled_in(region: MotoRegion, schedules: Schedules):
    arn = create(region, "hourly")
    schedules.run()
    region.clock.run(limit=2.5 * 3600)
    executions = region.engine.executions_of(arn)
    schedule = f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/hourly"
    inputs = sorted((json.loads(each.input_text) for each in executions), key=lambda given: given["id"])
    assert inputs == [{"id": f"{schedule} 2027-01-01T0{hour}:00:00Z", "try": "1"} for hour in (1, 2)]


def test_a_schedule_that_is_delivered_twice_has_the_same_input(region: MotoRegion, schedules: Schedules):
    arn = create(region, "once", ScheduleExpression="at(2027-01-01T01:00:00)")
    region.events.repeat("*stateMachine:m")
    schedules.run()
    region.clock.run()
    first, second = region.engine.executions_of(arn)
    assert first.input_text == second.input_text


def test_a_disabled_schedule_does_not_run(region: MotoRegion, schedules: Schedules):
    arn = create(region, "off", State="DISABLED")
    schedules.run()
    region.clock.run(limit=2 * 3600)
    assert region.engine.executions_of(arn) == []
