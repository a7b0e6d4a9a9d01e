"""The rules of a coordinator and of one key, row by row, and the znodes of a key."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.base.timeouts import AS_SET, Deadline
from leaderq.coalescing import (
    AsyncQueueCoordinator,
    CoordinatorStats,
    Debounce,
    EnqueueOutcome,
    QueueCoordinator,
    TrafficAutomaton,
    TrafficState,
)
from leaderq.coalescing.distributed.slots import (
    LONGEST,
    KeyZnodes,
    SlotHolder,
    SlotStanding,
    encoded,
    holder,
    judge,
    validated_root,
)
from leaderq.errors import ConfigurationError, ConnectionLost, NoNode
from leaderq.zookeeper import Stat
from leaderq.zookeeper.paths import validated_path


async def never_run(*_: Any) -> Any: ...


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({"waiters": -1}, ["waiters=-1: give 0 to 1"]),
        ({"waiters": 1.0, "timeout_s": "5"}, ["waiters=1.0: give int", "timeout_s='5': "]),
        ({"waiters": 0, "debounce": Debounce(1, 2)}, ["debounce window"]),
        (
            {"waiters": 2, "timeout_s": math.nan, "safe_timeout_s": 0, "cover": never_run},
            ["waiters=2: ", "timeout_s=nan: ", "safe_timeout_s=0: ", "cover is never_run, a corou"],
        ),
        (
            {"on_evicted": 5, "debounce": 2.0, "name": 7, "safe_timeout_s": math.inf},
            ["on_evicted is 5", "debounce=2.0: give ", "name=7: give str", "safe_timeout_s=inf: "],
        ),
    ],
)
def test_h9_keywords_that_cannot_be_used_are_refused_all_at_once(given, problems):
    with pytest.raises(ConfigurationError) as refused:
        QueueCoordinator(**given)
    assert len(refused.value.problems) == len(problems)
    assert [each for each in problems if each not in str(refused.value)] == []


def test_a_new_coordinator_has_counted_nothing() -> None:
    agreeing: dict[str, Any] = {"waiters": 0, "timeout_s": None, "safe_timeout_s": 0.5, "name": "p"}
    made = QueueCoordinator(**agreeing), QueueCoordinator(debounce=Debounce(1, 1))
    for stats in (CoordinatorStats(), *(one.stats() for one in made)):
        assert {getattr(stats, name) for name in CoordinatorStats.__slots__} == {0}


def test_a_request_waits_as_set_or_as_it_says() -> None:
    asked = [Deadline.asked(given, 7) for given in (AS_SET, None, math.inf, 0)]
    assert [one.timeout_s for one in asked] == [7, None, math.inf, 0]
    assert [one.is_over for one in asked] == [False, False, False, True]
    for ask in (QueueCoordinator().drain, lambda wrong: Deadline.asked(wrong, 7)):
        with pytest.raises(ConfigurationError):
            ask(math.nan)
    no_time = Deadline(math.nan)
    assert (no_time.is_over, no_time.remaining_s, no_time.left_s(5.0)) == (True, 0.0, 0.0)


def test_what_a_coordinator_of_tasks_takes_is_checked_as_well() -> None:
    for wrong in ({"coordinator": 5}, {"cover": print}, {"waiters": 1.5}):
        with pytest.raises(ConfigurationError):
            AsyncQueueCoordinator(**wrong)  # type: ignore[arg-type]
    for maker in (QueueCoordinator(), AsyncQueueCoordinator()):
        with pytest.raises(ConfigurationError, match="share=1: give bool"):
            maker.coalesced(key=str, share=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("times", [(0, 2), (1, 0), (3, 2), (3, "x"), (math.nan, 1), (1, math.inf)])
def test_a_debounce_that_cannot_be_is_refused(times: tuple[Any, Any]) -> None:
    with pytest.raises(ConfigurationError, match="delay_s"):
        Debounce(*times)


INIT, OPEN, PROCESS, BLOCK = list(TrafficState)[:4]
ACCEPT, WAIT, DECLINE = EnqueueOutcome


@pytest.mark.parametrize(
    ("waiters", "line", "event", "owner", "after", "answer", "line_after"),
    [
        (1, "--", "enqueue", "a", PROCESS, ACCEPT, "a-"),
        (0, "--", "enqueue", "a", PROCESS, ACCEPT, "a-"),
        (1, "--", "enqueue later", "a", OPEN, WAIT, "-a"),
        (1, "-a", "enqueue later", "b", OPEN, DECLINE, "-a"),
        (1, "-a", "enqueue", "b", OPEN, DECLINE, "-a"),
        (1, "a-", "enqueue", "b", BLOCK, WAIT, "ab"),
        (0, "a-", "enqueue", "b", PROCESS, DECLINE, "a-"),
        (1, "ab", "enqueue", "c", BLOCK, DECLINE, "ab"),
        (1, "a-", "dequeue", "a", INIT, None, "--"),
        (1, "ab", "dequeue", "a", OPEN, None, "-b"),
        (1, "ab", "dequeue", "b", PROCESS, None, "a-"),
        (1, "-b", "dequeue", "b", INIT, None, "--"),
        (1, "--", "dequeue", "a", INIT, None, "--"),
        (1, "ab", "dequeue", "c", BLOCK, None, "ab"),
        (1, "-b", "begin", None, PROCESS, "b", "b-"),
    ],
)
def test_the_table_holds_row_by_row(waiters, line, event, owner, after, answer, line_after):
    automaton: TrafficAutomaton[str] = TrafficAutomaton(waiters)
    automaton.line = tuple(None if one == "-" else one for one in line)
    verb, _, later = event.partition(" ")
    given = {"at_once": False} if later else {}
    assert getattr(automaton, verb)(*filter(None, [owner]), **given) == answer
    assert automaton.state is after
    assert "".join(one or "-" for one in (automaton.head, automaton.waiter)) == line_after


def test_a_new_automaton_is_empty_and_lets_one_wait():
    automaton: TrafficAutomaton[str] = TrafficAutomaton()
    assert (automaton.state, automaton.waiters) == (INIT, 1)
    assert [automaton.enqueue(owner) for owner in "abc"] == [ACCEPT, WAIT, DECLINE]
    for waiters in (-1, 2):
        with pytest.raises(ValueError, match=f"waiters={waiters}"):
            TrafficAutomaton(waiters)


@pytest.mark.parametrize(
    ("line", "call", "why"),
    [
        *(((one, "b"), lambda at: at.enqueue("b"), "already") for one in (None, "a")),
        (("b", None), lambda at: at.enqueue("b"), "already"),
        *((line, lambda at: at.begin(), "to begin") for line in [(None, None), ("a", "b")]),
    ],
)
def test_an_owner_stands_in_line_once_and_begins_when_nobody_runs(line, call, why):
    automaton: TrafficAutomaton[str] = TrafficAutomaton()
    automaton.line = line
    with pytest.raises(ValueError, match=why):
        call(automaton)
    assert automaton.line == line


ANY_TEXT = st.text(st.characters(), max_size=300)  # lone surrogates, too
KEYS = st.one_of(ANY_TEXT, st.binary(max_size=300))


@given(KEYS)
def test_every_key_has_a_name_that_zookeeper_takes(key):
    place = KeyZnodes.of("/root", key)
    token = place.new_token()
    for path in (place.slot(0), place.slot(1), place.token(token)):
        assert validated_path(path) == path
        assert path.isascii()
        assert len(path) < LONGEST + 50


@given(KEYS, KEYS)
def test_no_znode_of_one_key_is_taken_for_that_of_another(one, other):
    if one != other:
        ours, theirs = KeyZnodes.of("/root", one), KeyZnodes.of("/root", other)
        assert {ours.slot(0), ours.slot(1)}.isdisjoint({theirs.slot(0), theirs.slot(1)})


def test_a_key_or_a_root_that_has_no_place_is_refused():
    for key in (None, 1, ("a", "b")):
        with pytest.raises(ConfigurationError, match=type(key).__name__):
            encoded(key)  # type: ignore[arg-type]
    for root in ("", "a", "/", "/a//b", None):
        with pytest.raises(ConfigurationError):
            validated_root(root)  # type: ignore[arg-type]


def at(slot: int, token: str, number: int) -> SlotHolder:
    return SlotHolder(slot, token, number, 1)


def read(token: str, number: int) -> tuple[bytes, Stat]:
    return token.encode(), Stat(number, number, 0, 0, 0, 0, 0, 7, 0, 0, number)


A, B = at(0, "a", 1), at(1, "b", 2)


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ((None, None, None), (SlotStanding.OUTSIDE, 0)),
        ((A, None, A), (SlotStanding.OUTSIDE, 1)),
        ((None, B, None), (SlotStanding.OUTSIDE, 0)),
        ((A, B, A), (SlotStanding.DECLINED, 0)),
        ((A, B, None), (SlotStanding.OUTSIDE, 0)),
        ((None, B, A), (SlotStanding.UNCLEAR, 0)),
        ((A, B, at(0, "c", 3)), (SlotStanding.UNCLEAR, 0)),
        ((at(0, "me", 1), None, at(0, "me", 1)), (SlotStanding.HEAD, 0)),
        ((at(0, "me", 1), B, at(0, "me", 1)), (SlotStanding.HEAD, 0)),
        ((at(0, "me", 3), B, at(0, "me", 3)), (SlotStanding.WAITS, 0)),
        ((A, at(1, "me", 2), A), (SlotStanding.WAITS, 1)),
        ((A, at(1, "me", 2), None), (SlotStanding.HEAD, 1)),
        ((A, at(1, "me", 2), at(0, "c", 3)), (SlotStanding.HEAD, 1)),
    ],
)
def test_where_somebody_stands(slots, expected):
    assert judge("me", *slots) == expected


def test_a_slot_is_read_from_what_zookeeper_gave():
    assert holder(1, read("b", 5)) == SlotHolder(1, "b", 5, 7)
    assert holder(1, NoNode("x")) is None
    with pytest.raises(ConnectionLost):
        holder(1, ConnectionLost("x"))
