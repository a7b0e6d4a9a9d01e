"""Each checker on histories made by hand."""

from __future__ import annotations

import sys
from functools import partial
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError
from leaderq.testing.nemesis import careers, checkers, cluster
from leaderq.testing.nemesis.history import History, Kind, Line, What


@pytest.mark.parametrize(
    ("career", "given", "said"),
    [
        ("leaderq:AsyncLeaderCareer", {}, "give a LeaderCareer"),
        ("leaderq:connect", {}, "give a LeaderCareer"),
        ("a:B", {"minutes": nan}, "minutes=nan: give more than 0"),
        ("a:B", {"session_timeout_s": 0}, "session_timeout_s=0: give more than 0"),
    ],
)
def test_what_cannot_be_shaken_is_refused(career, given, said, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv(careers.CAREER, career)
    with pytest.raises(ConfigurationError, match=said):
        cluster.NemesisOptions(1, career, folder=tmp_path, **given)
        careers.__getattr__("Recorded")


BOUNDS = checkers.Bounds(timeout_s=6.0)


def line(what: What, at: float, term: int, pid: int, *, child: bool = False) -> Line:
    return Line(at, what, who="ab"[pid - 1], pid=pid, term=term, child=child)


inaugurated, unit = partial(line, What.INAUGURATED), partial(line, What.UNIT)
effect, believed = partial(line, What.EFFECT), partial(line, What.BELIEVED)


def fault(at: float, kind: Kind, what: What = What.FAULT) -> Line:
    return Line(at, what, pid=1, kind=kind, number=1)


CHANGE = [
    *(inaugurated(1, 1, 1), unit(1.1, 1, 1), effect(1.2, 1, 1)),
    *(inaugurated(5, 2, 2), unit(5.1, 2, 2)),
]
"""A change of leadership as it should be."""


@given(st.lists(st.integers(1, 9)))
def test_fenced_writes_in_the_order_of_their_terms_pass_and_any_others_do_not(terms):
    lines = [Line(0, What.ACCEPTED, number=at, term=term) for at, term in enumerate(terms)]
    assert bool(checkers.register_never_falls_back(lines, BOUNDS)) == (terms != sorted(terms))


@pytest.mark.parametrize(
    "late",
    [
        *(one(5.2, 1, 1) for one in (unit, effect, believed, inaugurated)),
        effect(5.2, 1, 1, child=True),
    ],
)
def test_whatever_a_term_does_after_the_next_ones_inauguration_is_found(late):
    assert checkers.nothing_after_its_term(CHANGE, BOUNDS) == []
    (found,) = checkers.nothing_after_its_term([*CHANGE, late], BOUNDS)
    for said in ("(process 1)", "after term 2 of b (process 2) was inaugurated", "0.200 s after"):
        assert said in found


def frozen(kind: Kind, *late: Line, since: float = 2.0, until: float = 9.0) -> list[Line]:
    """Something is done to process 1 in its term; its successor is inaugurated at 5."""
    struck = [fault(since, kind), fault(until, kind, What.OVER)]
    return sorted([*CHANGE, *struck, *late], key=lambda one: one.at)


FREEZES = (Kind.FREEZE_WORKER, Kind.FREEZE_TREE, Kind.FREEZE_BOTH)
ENDINGS = (Kind.END_SESSION, Kind.DELETE_ZNODE)
OTHERS = (Kind.KILL_WORKER, Kind.HOLD_GIL, Kind.BLACK_HOLE, Kind.LOSE_QUORUM)
DEAD, STUNNED = (Kind.KILL_GUARDIAN, Kind.KILL_BOTH), (Kind.KILL_GUARDIAN, Kind.FREEZE_GUARDIAN)


@pytest.mark.parametrize(
    ("kinds", "span", "late", "is_excused"),
    [
        # a thawed worker has a tenth of a second and one unit, and may believe nothing
        (FREEZES, (2, 9), [effect(9.05, 1, 1), effect(9.099, 1, 1)], True),
        (FREEZES, (2, 9), [effect(9.101, 1, 1)], False),
        (FREEZES, (2, 9), [unit(9.01, 1, 1)], True),  # the one that it was about to begin
        (FREEZES, (2, 9), [unit(9.01, 1, 1), unit(9.02, 1, 1)], False),
        (FREEZES, (2, 9), [unit(9.11, 1, 1)], False),
        (FREEZES, (2, 9), [believed(9.01, 1, 1)], False),
        # without a guardian a running unit and children go on, but nothing begins
        (DEAD, (2, 2), [effect(99, 1, 1), effect(99, 1, 1, child=True)], True),
        (STUNNED, (2, 9), [unit(5.2, 1, 1)], False),
        (STUNNED, (2, 9), [believed(5.2, 1, 1)], False),
        # a guardian that goes on ends its worker within a quarter of the time-out
        ([Kind.FREEZE_GUARDIAN], (2, 9), [effect(7, 1, 1), effect(10.5, 1, 1)], True),
        ([Kind.FREEZE_GUARDIAN], (2, 9), [effect(11.1, 1, 1)], False),
        # what was ended from outside excuses for one time-out; nothing else excuses anything
        *((ENDINGS, (4.9, 5), [one(10.9, 1, 1)], True) for one in (unit, effect, believed)),
        *((ENDINGS, (4.9, 5), [one(11.1, 1, 1)], False) for one in (unit, effect, believed)),
        (OTHERS, (2, 9), [effect(6, 1, 1, child=True)], False),
    ],
)
def test_what_a_fault_excuses(kinds, span, late, is_excused):
    for kind in kinds:
        told = frozen(kind, *late, since=span[0], until=span[1])
        assert (checkers.nothing_after_its_term(told, BOUNDS) == []) is is_excused, kind


@pytest.mark.parametrize(
    "sign",
    [
        unit(28.1, 2, 2),  # too late
        unit(21, 1, 1),  # an older term
        effect(27, 2, 2, child=True),  # a child proves nothing about its worker
        effect(21.9, 2, 2),  # it may be about to be ended
        Line(21, What.LEADER),  # what an observer sees may be the znode of a dead process
    ],
)
def test_what_proves_no_leader_does_not_count(sign):
    healed = [*CHANGE, Line(20, What.HEALED), sign, Line(99, What.SAMPLE)]
    (found,) = checkers.led_again(healed, BOUNDS)
    assert "all was healed at 20.000" in found


def test_a_pause_is_heard_within_a_time_out_and_a_new_leader_begins_nothing_under_it():
    paused = [*CHANGE, Line(10, What.PAUSED)]
    assert checkers.paused_is_paused([*paused, unit(15.9, 2, 2)], BOUNDS) == []
    (found,) = checkers.paused_is_paused([*paused, unit(16.1, 2, 2)], BOUNDS)
    assert "6.100 s into a pause" in found
    assert checkers.paused_is_paused([*paused, inaugurated(12, 3, 1), unit(12.01, 3, 1)], BOUNDS)


@pytest.mark.parametrize(
    ("what", "start", "leak"),
    [("threads", 10, 0.1), ("descriptors", 20, 0.2), ("memory_kb", 50_000, 400)],
)
def test_what_grows_steadily_is_found_and_what_is_level_is_not(what, start, leak):
    def found_in(values: list[float]) -> list[str]:
        level = {"threads": 10, "descriptors": 20, "memory_kb": 50_000}
        named = partial(Line, what=What.SAMPLE, who="a", pid=7, why="worker")
        samples = [named(at, sizes={**level, what: one}) for at, one in enumerate(values)]
        return checkers.flat([Line(0, What.CONNECTED, who="a", pid=7), *samples], BOUNDS)

    assert found_in([start * (1.1 if at % 2 else 0.9) for at in range(120)]) == []
    (found,) = found_in([start + leak * 2 * at for at in range(120)])
    assert found.startswith(f"{what} of the worker of a (process 7) grew from")


def test_a_history_is_checked_and_counted_as_it_stands_in_its_file(tmp_path):
    history, hole = History(tmp_path / "history.jsonl"), {"number": 1, "kind": Kind.BLACK_HOLE}
    history.append(What.INAUGURATED, at=1, who="a", pid=1, term=1)
    history.append(What.FAULT, at=2, who="a", pid=1, **hole)
    history.append(What.OVER, at=3, who="a", pid=1, why="it did not work", **hole)
    history.append(What.INAUGURATED, at=4, who="b", pid=2, term=2)
    history.append(What.EFFECT, at=5, pid=1, term=1, child=True)
    history.close()
    report = checkers.check(history.path, seed=7, bounds=BOUNDS)
    assert report.faults == {"black hole": 1}
    counted = ("inaugurated", "effect by a child", "faults that failed")
    assert [report.counts[one] for one in counted] == [2, 1, 1]
    (violation,) = report.violations
    assert violation in str(report)
    assert "seed=7" in str(report)
