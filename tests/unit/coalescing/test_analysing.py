"""How keys repeat and what is saved: against what a few lines of plain code find."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.coalescing.analysing import (
    Duplication,
    InOrder,
    RepeatMeter,
    SavingSimulator,
    analyse,
    spread,
)
from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.errors import ConfigurationError

KEYS = st.lists(st.sampled_from("abcdefgh"), max_size=60)


def measured(keys, **options):
    meter = RepeatMeter(**options)
    for key in keys:
        meter.note(key)
    return meter.result()


def distances(keys):
    last, found = {}, []
    for at, key in enumerate(keys):
        if key in last:
            found.append(at - last[key])
        last[key] = at
    return found


@given(KEYS, st.integers(1, 10))
def test_distances_are_what_plain_code_finds(keys, window):
    found = distances(keys)
    repeats = measured(keys, window=window)
    assert repeats.requests == len(keys)
    assert repeats.keys == len(set(keys))
    assert repeats.repeats == len(found) == sum(repeats.distances.values())
    assert repeats.minimum_distance == min(found, default=None)
    assert repeats.near == sum(one <= window for one in found)
    assert repeats.forgotten == 0
    assert dict(repeats.hottest).items() <= {key: keys.count(key) for key in keys}.items()


@given(KEYS, st.integers(1, 4))
def test_with_little_memory_every_distance_up_to_it_is_still_exact(keys, memory):
    repeats = measured(keys, window=1, memory=memory)
    found = [one for one in distances(keys) if one <= memory]
    assert repeats.near == sum(one == 1 for one in found)
    if found:
        assert repeats.minimum_distance == min(found)
    if not repeats.forgotten:
        assert repeats.keys == len(set(keys))


@pytest.mark.parametrize(
    ("keys", "duplication"),
    [
        ("", Duplication.NONE),
        ("abcdefgh", Duplication.NONE),
        ("a" * 10, Duplication.HIGH),
        ("abcdefghij" * 10, Duplication.HIGH),
        ([str(number) for number in range(200)] * 2, Duplication.SPARSE),
        (["x", "x", *map(str, range(100))], Duplication.SPARSE),
        (["x", "x", *map(str, range(18))], Duplication.HIGH),
        (["x", "x", *map(str, range(19))], Duplication.SPARSE),
    ],
)
def test_the_class_is_told_by_the_share_of_near_repeats(keys, duplication):
    assert measured(keys).duplication is duplication


def test_long_keys_are_told_apart_and_shown_shortened():
    one, other = "x" * 1000 + "1", "x" * 1000 + "2"
    repeats = measured([one, other, one])
    assert (repeats.keys, repeats.repeats, repeats.minimum_distance) == (2, 1, 2)
    assert repeats.hottest[0] == ("x" * 64 + "...", 2)


@pytest.mark.parametrize("options", [{"window": 0}, {"memory": 0}, {"window": 11, "memory": 10}])
def test_a_measure_that_could_not_be_exact_is_refused(options):
    with pytest.raises(ConfigurationError):
        RepeatMeter(**options)


def simulated(arrivals, service_s, **options):
    simulator = SavingSimulator(service_s, **options)
    outcomes = [simulator.note(at_s, key) for at_s, key in arrivals]
    return outcomes, simulator.result()


def test_one_runs_one_waits_the_rest_are_saved():
    arrivals = [
        (0.0, "k"),
        (0.1, "k"),
        (0.2, "k"),
        (0.3, "k"),
        (0.3, "other"),
        (1.5, "k"),
        (1.6, "k"),
        (3.5, "k"),
    ]
    outcomes, saving = simulated(arrivals, 1.0)
    accept, block, decline = EnqueueOutcome.ACCEPT, EnqueueOutcome.BLOCK, EnqueueOutcome.DECLINE
    assert outcomes == [accept, block, decline, decline, accept, block, decline, accept]
    assert (saving.requests, saving.runs, saving.declined) == (8, 5, 3)
    assert saving.share == 3 / 8
    assert (saving.met, saving.duplication) == (5, Duplication.HIGH)
    assert saving.waited_s == pytest.approx((0.9 + 0.5) / 2)
    assert saving.keys_at_once == 2


def test_the_class_at_a_service_time_is_told_by_those_who_meet_another():
    arrivals = [(float(number), str(number)) for number in range(30)]
    assert simulated(arrivals, 5.0)[1].duplication is Duplication.NONE
    assert simulated([*arrivals, (29.5, "29")], 5.0)[1].duplication is Duplication.SPARSE
    assert (
        simulated([*arrivals, (29.5, "29"), (29.6, "29")], 5.0)[1].duplication is Duplication.HIGH
    )
    assert simulated([*arrivals, (29.5, "29")], 0.4)[1].duplication is Duplication.NONE


def test_a_request_at_the_very_end_of_a_run_is_accepted():
    assert simulated([(0.0, "k"), (1.0, "k")], 1.0)[0] == [EnqueueOutcome.ACCEPT] * 2


def test_without_waiting_places_whoever_finds_a_run_is_saved():
    assert simulated([(0.0, "k"), (0.5, "k"), (1.0, "k")], 1.0, waiters=0)[1].runs == 2


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("ab")), max_size=40), st.integers(1, 10)
)
def test_runs_of_a_key_never_overlap_and_a_run_begins_after_each_request(arrivals, service):
    arrivals = sorted(arrivals)
    outcomes, saving = simulated(arrivals, float(service))
    for key in "ab":
        runs, came = [], [at for at, one in arrivals if one == key]
        for (at, one), outcome in zip(arrivals, outcomes, strict=True):
            if one == key and outcome is not EnqueueOutcome.DECLINE:
                runs.append(max(at, runs[-1] + service) if runs else at)
        assert all(later - earlier >= service for earlier, later in itertools.pairwise(runs))
        assert all(any(run >= at for run in runs) for at in came)
    assert saving.runs + saving.declined == len(arrivals)


@pytest.mark.parametrize(
    "options",
    [
        {"service_s": 0},
        {"service_s": -1},
        {"service_s": float("inf")},
        {"service_s": 1, "waiters": -1},
    ],
)
def test_a_simulation_of_nothing_is_refused(options):
    with pytest.raises(ConfigurationError):
        SavingSimulator(**options)


@given(st.lists(st.tuples(st.integers(0, 30).map(float), st.sampled_from("ab")), max_size=40))
def test_arrivals_are_put_in_order_as_far_as_the_buffer_reaches(arrivals):
    assert list(InOrder(arrivals, buffer=100)) == sorted(arrivals, key=lambda one: one[0])
    small = InOrder(arrivals, buffer=3)
    times = [at_s for at_s, _ in small]
    assert times == sorted(times)
    assert len(times) == len(arrivals)


def test_what_comes_too_late_is_counted_and_comes_with_the_one_before():
    arrivals = InOrder([(10.0, "a"), (11.0, "b"), (1.0, "c")], buffer=1)
    assert list(arrivals) == [(10.0, "a"), (10.0, "c"), (11.0, "b")]
    assert arrivals.late == 1


@given(st.lists(st.integers(0, 5).map(float), max_size=40), st.integers(1, 50))
def test_spread_arrivals_stay_in_order_and_in_their_second(times, buffer):
    arrivals = [(at_s, str(number)) for number, at_s in enumerate(sorted(times))]
    found = list(spread(arrivals, resolution_s=1.0, buffer=buffer))
    assert [key for _, key in found] == [key for _, key in arrivals]
    assert all(before[0] <= after[0] for before, after in itertools.pairwise(found))
    assert all(
        at_s <= then_s <= at_s + 1.0 for (at_s, _), (then_s, _) in zip(arrivals, found, strict=True)
    )


def test_ties_are_spread_evenly():
    assert [at_s for at_s, _ in spread([(1.0, "a")] * 4 + [(7.0, "b")], resolution_s=1.0)] == [
        1.0,
        1.25,
        1.5,
        1.75,
        7.0,
    ]


def test_a_stream_is_measured_and_simulated_at_once():
    found = analyse(
        [("k", 0.0), ("k", 1.0), ("k", 2.0), ("j", 60.0), ("k", None)], services_s=(0.5, 10.0)
    )
    assert [one.declined for one in found.savings] == [0, 1]
    assert found.repeats.requests == 5
    assert (found.untimed, found.late) == (1, 0)
    assert found.span_s == 60.0
    assert found.rate == 3 / 60


def test_without_times_nothing_is_said_of_a_saving_unless_a_rate_is_given():
    assert analyse([("k", None)] * 3).savings == ()
    assert analyse([("k", None)] * 30, rate=10.0).savings[0].declined > 0
    with pytest.raises(ConfigurationError, match="rate"):
        analyse([], rate=0.0)


def test_an_empty_stream_is_no_error():
    found = analyse([])
    assert (found.repeats.requests, found.savings, found.rate) == (0, (), None)
