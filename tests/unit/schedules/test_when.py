"""The times of ticks: the nights on which clocks change, expressions that libraries disagree on.

Times are written as local time with its offset. Debian's cron was run on the same nights, and
did the same.
"""

from __future__ import annotations

from datetime import datetime, timezone
from itertools import islice
from typing import Any

import pytest
from cronsim import CronSim

from leaderq.career import LeaderCareer
from leaderq.errors import ConfigurationError
from leaderq.schedules.definition import MOST_COUNTED, When, definitions_of, schedule, when_of
from leaderq.schedules.timetable import timetable_of

SPRING, AUTUMN = "2026-03-29T00:00+01:00", "2026-10-25T00:00+02:00"  # Berlin's two nights
DAY_AFTER_SPRING, DAY_AFTER_AUTUMN = "2026-03-30T00:00+02:00", "2026-10-26T00:00+01:00"


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


TABLE = [
    # (zone, expression, from, until, the ticks)
    ("Europe/Berlin", "30 2 * * *", SPRING, DAY_AFTER_SPRING, ["2026-03-29T03:00+02:00"]),
    ("Europe/Berlin", "30 2 * * *", AUTUMN, DAY_AFTER_AUTUMN, ["2026-10-25T02:30+02:00"]),
    # several times in the gap are its end, once
    ("Europe/Berlin", "0,30 2 * * *", SPRING, DAY_AFTER_SPRING, ["2026-03-29T03:00+02:00"]),
    ("Europe/Berlin", "0,30 2 * * *", AUTUMN, DAY_AFTER_AUTUMN,
     ["2026-10-25T02:00+02:00", "2026-10-25T02:30+02:00"]),
    # hourly and finer: the elapsed clock
    ("Europe/Berlin", "0 * * * *", SPRING, "2026-03-29T04:00+02:00",
     ["2026-03-29T01:00+01:00", "2026-03-29T03:00+02:00", "2026-03-29T04:00+02:00"]),
    ("Europe/Berlin", "0 * * * *", AUTUMN, "2026-10-25T03:00+01:00",
     ["2026-10-25T01:00+02:00", "2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00",
      "2026-10-25T03:00+01:00"]),
    # half an hour: 02:00 becomes 02:30 in October, 02:00 becomes 01:30 in April
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-04T00:00+10:30", "2026-10-05T00:00+11:00",
     ["2026-10-04T02:30+11:00"]),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-05T00:00+11:00", "2026-04-06T00:00+10:30",
     ["2026-04-05T01:45+11:00"]),
    ("Australia/Lord_Howe", "*/30 1 * * *", "2026-04-05T00:00+11:00", "2026-04-06T00:00+10:30",
     ["2026-04-05T01:00+11:00", "2026-04-05T01:30+11:00", "2026-04-05T01:30+10:30"]),
    ("UTC", "0 0 29 2 *", "2026-01-01T00:00+00:00", "2033-01-01T00:00+00:00",
     ["2028-02-29T00:00+00:00", "2032-02-29T00:00+00:00"]),
    # only minute 59: Debian's cron refuses it, others take it for each minute
    ("UTC", "59/1 * * * *", "2026-01-01T00:00+00:00", "2026-01-01T02:30+00:00",
     ["2026-01-01T00:59+00:00", "2026-01-01T01:59+00:00"]),
    # both days restricted: either; one begins with a star: both
    ("UTC", "0 0 13 * FRI", "2026-11-01T00:00+00:00", "2026-11-15T00:00+00:00",
     ["2026-11-06T00:00+00:00", "2026-11-13T00:00+00:00"]),
    ("UTC", "0 0 */2 * SUN", "2026-11-01T01:00+00:00", "2026-11-30T00:00+00:00",
     ["2026-11-15T00:00+00:00", "2026-11-29T00:00+00:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("tz", "cron", "first", "until", "expected"), TABLE)
def test_each_night_has_the_ticks_that_cron_users_expect(tz, cron, first, until, expected):
    when = when_of(cron, None, tz)
    found = when.between(ms(first), ms(until))
    assert [when.moment(at).isoformat(timespec="minutes") for at in found] == [*expected]


def test_who_begins_in_the_second_of_two_equal_hours_does_not_go_back_to_the_first():
    when = when_of("30 2 * * *", None, "Europe/Berlin")
    second = ms("2026-10-25T02:10+01:00")
    assert when.after(second) == ms("2026-10-26T02:30+01:00")


def test_the_ticks_of_a_year_are_the_same_wherever_one_begins_to_count():
    when = when_of("0,30 1-4 * * *", None, "Europe/Berlin")
    whole = when.between(ms("2026-01-01T00:00+01:00"), ms("2026-05-01T00:00+02:00"))
    assert whole == sorted(set(whole))
    for at in range(ms("2026-03-28T12:00+01:00"), ms("2026-03-30T12:00+02:00"), 600_000):
        assert when.after(at) == next(one for one in whole if one > at)


def test_intervals_are_counted_from_the_epoch():
    when = when_of(None, 30, "UTC")
    assert when.between(29_999, 90_000) == [30_000, 60_000, 90_000]
    assert when.after(30_000) == 60_000


@pytest.mark.parametrize("when", [When("* * * * *"), When(None, "UTC", 60_000)])
def test_of_a_long_outage_the_newest_ticks_are_looked_at(when):
    until = ms("2026-11-01T00:00+00:00")
    found = when.between(ms("2024-01-01T00:00+00:00"), until)
    assert MOST_COUNTED // 2 <= len(found) <= MOST_COUNTED
    assert found == [until - 60_000 * back for back in range(len(found) - 1, -1, -1)]


@pytest.mark.parametrize("until", ["2026-11-01T20:00", "2027-03-01T03:00", "2036-01-06T00:00"])
@pytest.mark.parametrize("cron", ["* 9-17 * * 1-5", "* * 1 * *", "* * 29 2 *"])
def test_of_ticks_that_come_in_crowds_the_newest_are_looked_at_too(cron, until):
    when, end = When(cron), ms(f"{until}+00:00")
    found = when.between(ms("2026-10-01T00:00+00:00"), end)
    every = [*when._until(found[0] - 1, end)] if found else []
    whole = [*islice(when._until(ms("2026-10-01T00:00+00:00"), end), MOST_COUNTED + 1)]
    assert found == every
    assert len(found) <= MOST_COUNTED
    assert len(found) >= MOST_COUNTED // 2 or found == whole


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either a cron expression, or every_s"),
        ({"cron": "@daily"}, "'@daily' does not have five fields: minute, hour"),
        ({"cron": "61 * * * *"}, "'61 * * * *' cannot be read: Bad minute"),
        ({"cron": "* * * * *", "tz": "Berlin"}, "tz='Berlin' is not a time zone known here"),
        ({"cron": "* * * * *", "tz": timezone.utc}, "give its name, like 'Europe/Berlin'"),
        ({"cron": "* * * * *", "tz": ["UTC"]}, "give its name, like 'Europe/Berlin'"),
        ({"every_s": "30"}, "every_s='30': give 0.1 to 3"),
        ({"every_s": 1, "catch_up": "first"}, "catch_up='first': give 'last' or 'all' or 'none'"),
        ({"every_s": 1, "grace_s": -1}, "grace_s=-1: give more than 0 seconds, or None"),
    ],
)
def test_what_cannot_be_used_is_refused_where_it_is_written(options, said):
    with pytest.raises(ConfigurationError) as refused:
        schedule(**options)
    assert said in str(refused.value)


def test_a_schedule_of_a_stage_which_is_called_all_the_time_is_refused() -> None:
    class Reports(LeaderCareer):
        @schedule("30 2 * * *")
        def execute(self, tick: Any) -> None: ...

    with pytest.raises(ConfigurationError, match=r"execute of .*Reports is called by leaderq"):
        timetable_of(Reports())


def test_a_schedule_counts_whatever_its_method_is_wrapped_in():
    def tidy(*_: object) -> None: ...

    tick, wrapped = schedule(every_s=5), (staticmethod, classmethod, property, lambda one: one)
    kinds = [type("Tidying", (), {"tidy": how(tick(tidy))}) for how in wrapped]
    kinds += [type("Tidying", (), {"tidy": tick(how(tidy))}) for how in (staticmethod, classmethod)]
    assert [[*definitions_of(kind)] for kind in kinds] == [["tidy"]] * 6
    assert definitions_of(type("Quiet", (kinds[0],), {"tidy": None})) == {}


@pytest.mark.parametrize("tz", ["Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "UTC"])
@pytest.mark.parametrize("cron", ["*/20 * * * *", "* 2 * * *", "5 * 1 4,11 *", "*/15 1,2 * * SUN"])
def test_what_runs_by_the_elapsed_clock_is_what_a_look_at_each_minute_finds(tz, cron):
    """Slow and sure: each minute is compared with the fields."""
    when, fields = when_of(cron, None, tz), CronSim(cron, datetime.now(timezone.utc))
    for first, until in (("2026-03-28", "2026-04-06"), ("2026-10-03", "2026-10-05")):
        begin, end = ms(f"{first}T00:00+00:00"), ms(f"{until}T00:00+00:00")
        expected = []
        for at in range(begin + 60_000, end + 1, 60_000):
            local = when.moment(at)
            fits = local.minute in fields.minutes and local.hour in fields.hours
            if fits and local.month in fields.months and fields.match_day(local.date()):
                expected.append(at)
        assert when.between(begin, end)[-1000:] == expected[-len(when.between(begin, end)) :]
