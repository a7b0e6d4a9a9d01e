"""Each checker on histories made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.testing.nemesis.checkers import (
    Bounds,
    check,
    flat,
    led_again,
    nothing_after_its_term,
    paused_is_paused,
    register_never_falls_back,
)
from leaderq.testing.nemesis.history import History, Kind, Line, What

BOUNDS = Bounds(timeout_s=6.0)


def inaugurated(at: float, term: int, pid: int) -> Line:
    return Line(at, What.INAUGURATED, who="ab"[pid - 1], pid=pid, term=term)


def unit(at: float, term: int, pid: int) -> Line:
    return Line(at, What.UNIT, who="ab"[pid - 1], pid=pid, term=term)


def effect(at: float, term: int, pid: int, *, child: bool = False) -> Line:
    return Line(at, What.EFFECT, pid=pid, term=term, child=child)


def believed(at: float, term: int, pid: int) -> Line:
    return Line(at, What.BELIEVED, pid=pid, term=term)


def fault(at: float, kind: Kind, *, pid: int = 1, number: int = 1) -> Line:
    return Line(at, What.FAULT, pid=pid, kind=kind, number=number)


def over(at: float, kind: Kind, *, pid: int = 1, number: int = 1) -> Line:
    return Line(at, What.OVER, pid=pid, kind=kind, number=number)


def accepted(number: int, term: int) -> Line:
    return Line(0, What.ACCEPTED, number=number, term=term)


def happened(at: float, what: What) -> Line:
    return Line(at, what)


CHANGE = [
    inaugurated(1, 1, 1),
    unit(1.1, 1, 1),
    effect(1.2, 1, 1),
    inaugurated(5, 2, 2),
    unit(5.1, 2, 2),
]
"""A change of leadership as it should be."""


# -- fenced writes


@given(st.lists(st.integers(1, 9)))
def test_fenced_writes_in_the_order_of_their_terms_pass_and_any_others_do_not(
    terms: list[int],
) -> None:
    lines = [accepted(number, term) for number, term in enumerate(terms)]
    assert bool(register_never_falls_back(lines, BOUNDS)) == (terms != sorted(terms))


# -- nothing after the term


def test_a_change_as_it_should_be_passes() -> None:
    assert nothing_after_its_term(CHANGE, BOUNDS) == []


@pytest.mark.parametrize(
    "late",
    [
        unit(5.2, 1, 1),
        effect(5.2, 1, 1),
        effect(5.2, 1, 1, child=True),
        believed(5.2, 1, 1),
        inaugurated(5.2, 1, 1),
    ],
)
def test_whatever_a_term_does_after_the_next_ones_inauguration_is_found(late: Line) -> None:
    (found,) = nothing_after_its_term([*CHANGE, late], BOUNDS)
    assert "(process 1)" in found
    assert "after term 2 of b (process 2) was inaugurated" in found
    assert "0.200 s after it" in found


# -- what is excused, and what is not


def frozen(kind: Kind, *late: Line, until: float = 9.0) -> list[Line]:
    """Worker 1 frozen in its term, its successor inaugurated at 5, thawed at ``until``."""
    before, after = [], []
    for line in late:
        (before if line.at <= until else after).append(line)
    return [*CHANGE[:3], fault(2, kind), *CHANGE[3:], *before, over(until, kind), *after]


FREEZES = [Kind.FREEZE_WORKER, Kind.FREEZE_TREE, Kind.FREEZE_BOTH]


@pytest.mark.parametrize("kind", FREEZES)
@pytest.mark.parametrize(
    ("late", "is_excused"),
    [
        ([effect(9.05, 1, 1), effect(9.099, 1, 1)], True),
        ([effect(9.101, 1, 1)], False),
        ([unit(9.01, 1, 1)], True),  # the one that it was about to begin
        ([unit(9.01, 1, 1), unit(9.02, 1, 1)], False),
        ([unit(9.11, 1, 1)], False),
        ([believed(9.01, 1, 1)], False),
    ],
)
def test_a_thawed_worker_has_a_tenth_of_a_second_and_one_unit_and_may_believe_nothing(
    kind: Kind, late: list[Line], is_excused: bool
) -> None:
    assert (nothing_after_its_term(frozen(kind, *late), BOUNDS) == []) is is_excused


@pytest.mark.parametrize("kind", [Kind.KILL_GUARDIAN, Kind.KILL_BOTH])
@pytest.mark.parametrize("child", [False, True])
def test_without_a_guardian_a_running_unit_and_children_are_excused_for_ever(
    kind: Kind, child: bool
) -> None:
    lines = [*CHANGE[:3], fault(2, kind), over(2, kind), *CHANGE[3:]]
    assert nothing_after_its_term([*lines, effect(99, 1, 1, child=child)], BOUNDS) == []


@pytest.mark.parametrize("kind", [Kind.KILL_GUARDIAN, Kind.FREEZE_GUARDIAN])
def test_without_a_guardian_no_unit_may_begin_and_no_belief_is_excused(kind: Kind) -> None:
    lines = [*CHANGE[:3], fault(2, kind), *CHANGE[3:]]
    assert nothing_after_its_term([*lines, unit(5.2, 1, 1)], BOUNDS)
    assert nothing_after_its_term([*lines, believed(5.2, 1, 1)], BOUNDS)


def test_a_guardian_that_goes_on_ends_its_worker_within_a_quarter_of_the_time_out() -> None:
    kind = Kind.FREEZE_GUARDIAN
    assert nothing_after_its_term(frozen(kind, effect(7, 1, 1), effect(10.5, 1, 1)), BOUNDS) == []
    assert nothing_after_its_term(frozen(kind, effect(11.1, 1, 1)), BOUNDS)


@pytest.mark.parametrize("kind", [Kind.END_SESSION, Kind.DELETE_ZNODE])
def test_a_session_or_znode_ended_from_outside_excuses_for_one_time_out(kind: Kind) -> None:
    lines = [*CHANGE[:3], fault(4.9, kind), over(5, kind), *CHANGE[3:]]
    for late in (unit, effect, believed):
        assert nothing_after_its_term([*lines, late(10.9, 1, 1)], BOUNDS) == []
        assert nothing_after_its_term([*lines, late(11.1, 1, 1)], BOUNDS)


@pytest.mark.parametrize(
    "kind", [Kind.KILL_WORKER, Kind.HOLD_GIL, Kind.BLACK_HOLE, Kind.LOSE_QUORUM]
)
def test_no_other_fault_excuses_anything(kind: Kind) -> None:
    assert nothing_after_its_term(frozen(kind, effect(6, 1, 1, child=True)), BOUNDS)


# -- led again

HEALED = [*CHANGE, happened(20, What.HEALED)]


@pytest.mark.parametrize(
    "sign",
    [
        unit(28.1, 2, 2),  # too late
        unit(21, 1, 1),  # an older term
        effect(27, 2, 2, child=True),  # a child proves nothing about its worker
        effect(21.9, 2, 2),  # it may be about to be ended
        happened(21, What.LEADER),  # what an observer sees may be the znode of a dead process
    ],
)
def test_what_proves_no_leader_does_not_count(sign: Line) -> None:
    (found,) = led_again([*HEALED, sign, happened(99, What.SAMPLE)], BOUNDS)
    assert "all was healed at 20.000" in found


# -- paused

PAUSED = [*CHANGE, happened(10, What.PAUSED)]


def test_the_present_leader_has_heard_of_a_pause_within_a_time_out() -> None:
    assert paused_is_paused([*PAUSED, unit(15.9, 2, 2)], BOUNDS) == []
    (found,) = paused_is_paused([*PAUSED, unit(16.1, 2, 2)], BOUNDS)
    assert "6.100 s into a pause" in found


def test_a_new_leader_begins_nothing_under_a_pause() -> None:
    assert paused_is_paused([*PAUSED, inaugurated(12, 3, 1), unit(12.01, 3, 1)], BOUNDS)


# -- left behind, flat


def samples(what: str, values: list[float], *, pid: int = 7) -> list[Line]:
    flat_ones: dict[str, Any] = {"threads": 10, "descriptors": 20, "memory_kb": 50_000}
    return [
        Line(0, What.CONNECTED, who="a", pid=pid),
        *(
            Line(at, What.SAMPLE, who="a", pid=pid, why="worker", sizes={**flat_ones, what: value})
            for at, value in enumerate(values)
        ),
    ]


@pytest.mark.parametrize(
    ("what", "start", "leak"),
    [("threads", 10, 0.1), ("descriptors", 20, 0.2), ("memory_kb", 50_000, 400)],
)
def test_what_grows_steadily_is_found_and_what_is_level_is_not(
    what: str, start: float, leak: float
) -> None:
    level = [start * (1.1 if step % 2 else 0.9) for step in range(120)]
    assert flat(samples(what, level), BOUNDS) == []
    (found,) = flat(samples(what, [start + leak * 2 * step for step in range(120)]), BOUNDS)
    assert found.startswith(f"{what} of the worker of a (process 7) grew from")


def test_a_history_is_checked_and_counted_as_it_stands_in_its_file(tmp_path) -> None:
    history = History(tmp_path / "history.jsonl")
    history.append(What.INAUGURATED, at=1, who="a", pid=1, term=1)
    history.append(What.FAULT, at=2, number=1, kind=Kind.BLACK_HOLE, who="a", pid=1)
    history.append(
        What.OVER, at=3, number=1, kind=Kind.BLACK_HOLE, who="a", pid=1, why="it did not work"
    )
    history.append(What.INAUGURATED, at=4, who="b", pid=2, term=2)
    history.append(What.EFFECT, at=5, pid=1, term=1, child=True)
    history.close()
    report = check(history.path, seed=7, bounds=BOUNDS)
    assert len(report.violations) == 1
    assert report.faults == {"black hole": 1}
    assert report.counts["inaugurated"] == 2
    assert report.counts["effect by a child"] == 1
    assert report.counts["faults that failed"] == 1
    assert report.violations[0] in str(report)
    assert "seed=7" in str(report)
