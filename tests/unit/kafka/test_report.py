"""Lag, rates and stalls, from looks at offsets; and the report as it is stored."""

from __future__ import annotations

import json
import sys
from itertools import accumulate

import pytest
from fake_career import A, B
from hypothesis import example, given
from hypothesis import strategies as st

from leaderq.errors import CorruptRecord, Deposed, Reason
from leaderq.events import EventBus
from leaderq.kafka.consuming.consumer_check import (
    AN_EMPTY_POLL,
    Observation,
    StallWatch,
    TransactionWatch,
)
from leaderq.kafka.consuming.report import (
    DrainReport,
    LagEstimator,
    PartitionLag,
    ProgressReports,
    decode,
    encode,
)
from leaderq.kafka.record import Partition
from leaderq.zookeeper import Create, SetData

Looks = list[tuple[float, dict[Partition, int], dict[Partition, int]]]


def after(looks: Looks) -> DrainReport:
    estimator = LagEstimator()
    for now_s, committed, ends in looks:
        estimator.see(now_s, committed, ends)
    return estimator.report(term=3, at=100.0)


def test_what_a_transaction_holds_back_is_part_of_the_lag_and_told_beside_it():
    estimator = LagEstimator()
    estimator.see(0.0, {A: 5, B: 7}, {A: 9, B: 7})
    report = estimator.report({A: 3}, term=3)
    assert report.partitions["t-0"] == PartitionLag(5, 9, 4, blocked_by_transaction=3)
    assert (report.lag, report.blocked_by_transaction) == (4, 3)


def test_a_transaction_holds_back_while_the_stable_end_stands_still_and_30_s_later_is_told_of_once(
    caplog,
):
    watch, stable, ends = TransactionWatch(), {A: 5, B: 7}, {A: 9}
    assert watch.held_back(0.0, stable, ends) == {}
    assert watch.held_back(5.0, stable, ends) == {A: 4}
    assert watch.held_back(29.9, stable, {A: 10}) == {A: 5}
    assert not caplog.messages
    for now_s in (30.0, 35.0):
        watch.held_back(now_s, stable, {A: 10})
    assert len(caplog.messages) == 1
    for said in ("partition=t-0 offset=5 records=5", "--topic t --partition 0 --start-offset 5"):
        assert said in caplog.text
    assert watch.held_back(40.0, {A: 6}, {A: 10}) == {}  # that one has ended; a later one is open
    assert watch.held_back(45.0, {A: 10}, {A: 10}) == {}
    watch.held_back(50.0, {A: 6}, {A: 10})
    watch.held_back(80.0, {A: 6}, {A: 10})
    assert len(caplog.messages) == 2


def test_the_time_to_catch_up_is_the_lag_divided_by_what_is_gained_each_second():
    ends = 10_000 + 95 * (100 - 60) + 800  # of 20 looks, the last has a lag of 800
    times = range(0, 100, 5)
    report = after([(at, {A: 10_000 + at * 100}, {A: ends + at * 60}) for at in times])
    assert (report.rate_per_s, report.arriving_per_s) == (100, 60)
    assert (report.lag, report.catch_up_s) == (800, 20)


offsets = st.dictionaries(st.sampled_from([A, B]), st.integers(0, 10_000))


@given(st.lists(st.tuples(st.floats(0, 100), offsets, offsets), max_size=12))
@example([(0.0, {A: 0}, {}), (sys.float_info.min, {A: 4}, {})])
def test_whatever_is_seen_nothing_is_negative(looks):
    times = accumulate(step_s for step_s, _, _ in looks)
    report = after([(at_s, *seen) for at_s, (_, *seen) in zip(times, looks, strict=True)])
    figures = report.lag, report.rate_per_s, report.arriving_per_s, report.catch_up_s
    assert all((one or 0) >= 0 for one in figures)
    assert decode(encode(report), path="/p") == report


def test_a_report_of_a_newer_version_is_read_without_what_is_not_known():
    row = {"position": 1, "end": 3, "lag": 2, "leader": 7}
    said = {"term": 4, "at": 1.5, "colour": "red", "buried": 6, "partitions": {"t-0": row}}
    found = decode(json.dumps(said).encode(), path="/p")
    lags = {"t-0": PartitionLag(1, 3, 2)}
    assert found == DrainReport(term=4, at=1.5, set_aside=6, partitions=lags)
    assert json.loads(encode(found))["buried"] == 6


NO_REPORTS = b"""
    \xff no [] "x" {"partitions":[]} {"partitions":{"t-0":5}} {"partitions":{"t-0":{"position":1}}}
    {"term":"four"} {"term":true} {"held_up":3} {"at":null} {"at":"noon"} {"rate_per_s":"quick"}
    {"at":Infinity} {"topic_ids":null} {"topic_ids":["a"]} {"topic_ids":{"t":5}} {"group":[]}
    {"dead_letters":7}
"""


@pytest.mark.parametrize("data", [b"", *NO_REPORTS.split()])
def test_what_is_no_report_is_said_to_be_none_with_its_place_and_what_to_do(data):
    with pytest.raises(CorruptRecord, match=r"/leaderq/c/progress.*delete it"):
        decode(data, path="/leaderq/c/progress")


def test_a_report_is_written_by_the_terms_own_writes_which_refuse_a_deposed_leader_silently(
    servers, caplog
):
    reports, term = ProgressReports(servers, EventBus(), "/p", "c", "a", "g", None), servers.term()
    for lag in (10, 4):
        reports.publish(term, after([(0, {A: 0}, {A: lag})]))
        assert reports._writing.done(30)
    assert [type(one) for (one,) in servers.writes] == [SetData, Create, SetData]
    assert decode(servers.data["/p"], path="/p").lag == 4
    servers.errors = [(Deposed(term=7, reason=Reason.FENCED), False)]
    reports.publish(term, after([]))
    assert reports._writing.done(30)
    reports.close()
    assert servers.errors == caplog.records == []


def looks(*rows: tuple[float, int, int, int, int], watch: StallWatch | None = None) -> list[float]:
    """The instants at which looks (at, position, end, polls, empty polls) are judged a stall."""
    watch = watch or StallWatch()
    found = ((*row[:3], row[3] + (AN_EMPTY_POLL - 1) * row[4]) for row in rows)
    return [row[0] for row in found if watch.find({A: Observation(*row)})]


@pytest.mark.parametrize(
    ("rows", "stalled_at"),
    [
        ([(0, 5, 9, 0, 0), (5, 5, 12, 25, 25), (10, 5, 14, 50, 50)], [10]),
        ([(0, 9, 9, 0, 0), (50, 9, 9, 250, 250), (100, 9, 9, 500, 500)], []),
        ([(0, 5, 9, 0, 0), (10, 5, 20, 60, 0), (20, 5, 30, 120, 0)], [20]),
        ([(at, 5, 6, at * 5, at * 5) for at in range(0, 200, 5)], [30]),
    ],
    ids=[
        "it stands while the end moves",
        "it is read to its end",
        "it is starved while others flow: found after many polls",
        "a tail that does not move: given longer, and one rebuild only",
    ],
)
def test_when_a_position_has_stalled(rows, stalled_at):
    assert looks(*rows) == stalled_at


def test_after_a_rebuild_time_and_polls_are_counted_again_and_the_same_stall_is_told_once():
    def rebuilt() -> StallWatch:
        watch = StallWatch()
        assert looks(*((at, 5, 6, at * 5, at * 5) for at in range(0, 35, 5)), watch=watch) == [30]
        watch.restart()
        return watch

    assert looks((31, 5, 6, 156, 156), (90, 5, 6, 400, 400), watch=rebuilt()) == []
    assert looks((31, 5, 6, 156, 156), (41, 5, 9, 166, 166), watch=rebuilt()) == [41]
    assert looks((31, 5, 6, 156, 156), (41, 5, 9, 157, 157), watch=rebuilt()) == []


@pytest.mark.parametrize("gone", [{}, {B: Observation(0, 0, 0, 0)}])
def test_a_partition_not_held_any_more_is_forgotten(gone):
    watch = StallWatch()
    watch.find({A: Observation(0, 5, 9, 0)})
    watch.find(gone)
    assert looks((11, 5, 99, 60, 60), watch=watch) == []
