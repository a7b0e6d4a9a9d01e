"""The rules of a coordinator and of one key, row by row, and the znodes of a key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.coalescing import Departure, EnqueueOutcome, TrafficAutomaton, TrafficState
from leaderq.coalescing.distributed.slots import (
    LONGEST,
    KeyView,
    KeyZnodes,
    SlotHolder,
    SlotStanding,
    encoded,
    holder,
    judge,
    validated_root,
    view,
)
from leaderq.coalescing.rules import CoordinatorStats, Debounce, KeepIdle, Overflow, Rules
from leaderq.errors import ConfigurationError, ConnectionLost, NoNode
from leaderq.timeouts import AS_SET
from leaderq.zookeeper import Stat
from leaderq.zookeeper.paths import validated_path


def test_by_default_one_waits_for_a_minute_and_newcomers_are_declined() -> None:
    assert Rules() == Rules(1, Overflow.DECLINE_NEW, 60.0, None, None, None)
    assert KeepIdle(5).idle_s is None


@pytest.mark.parametrize(
    "given",
    [
        {"waiters": 0},
        {"waiters": 1, "overflow": Overflow.REPLACE_OLDEST},
        {"overflow": lambda a, b: a},
        {"debounce": Debounce(1, 1)},
        {"idle": KeepIdle(1, 0.5)},
        {"safe_timeout_s": 0.5, "timeout_s": None},
        {"timeout_s": 0},
        {"safe_timeout_s": 1.0},
    ],
)
def test_rules_that_agree_are_taken(given: dict[str, Any]) -> None:
    assert Rules(**given) == Rules(**given)


async def never_run(a: Any, b: Any) -> Any: ...


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({"waiters": -1}, ["waiters=-1: give 0 or more"]),
        ({"waiters": 0, "overflow": Overflow.REPLACE_OLDEST}, ["overflow must be DECLINE_NEW"]),
        ({"waiters": 0, "debounce": Debounce(1, 2)}, ["debounce window"]),
        ({"overflow": never_run}, ["overflow (an Overflow, or a function)"]),
        (
            {"overflow": never_run, "waiters": -1},
            ["waiters=-1: give 0 or more", "overflow (an Overflow"],
        ),
        ({"overflow": 5}, ["overflow (an Overflow, or a function)"]),
        ({"idle": KeepIdle(0)}, ["the cap of idle keys=0: give 1 or more"]),
        ({"idle": KeepIdle(1, 0)}, ["idle_s=0: "]),
        ({"idle": KeepIdle(1, -1)}, ["idle_s=-1: "]),
        ({"safe_timeout_s": 0}, ["safe_timeout_s=0: "]),
        ({"debounce": Debounce(0, 2)}, ["delay_s=0: "]),
        ({"debounce": Debounce(1, 0)}, ["max_delay_s=0: "]),
        ({"debounce": Debounce(3, 2)}, ["max_delay_s 2, delay_s 3"]),
        ({"debounce": Debounce(3, "x")}, ["max_delay_s='x': "]),
        ({"timeout_s": -1}, ["timeout_s"]),
        (
            {"waiters": 0, "debounce": Debounce(0, 2), "idle": KeepIdle(0), "timeout_s": "x"},
            ["debounce window", "the cap", "delay_s=0: ", "timeout_s"],
        ),
    ],
)
def test_rules_that_contradict_each_other_are_refused_all_at_once(
    given: dict[str, Any], problems: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Rules(**given)
    assert len(refused.value.problems) == len(problems)
    assert [each for each in problems if each not in str(refused.value)] == []


def test_a_request_waits_as_set_or_as_it_says() -> None:
    assert Rules(timeout_s=None).deadline(AS_SET).remaining_s is None
    assert Rules(timeout_s=0).deadline(AS_SET).remaining_s == 0
    assert Rules(timeout_s=0).deadline(None).remaining_s is None
    with pytest.raises(ConfigurationError):
        Rules().deadline(-2)


def test_a_new_coordinator_has_counted_nothing() -> None:
    stats = CoordinatorStats()
    assert {getattr(stats, name) for name in CoordinatorStats.__slots__} == {0}


def test_requests_that_ran_at_once_and_that_were_covered_add_up() -> None:
    stats = CoordinatorStats(runs=10, promoted=3, repeated=2, declined=4, replaced=5, merged=6)
    assert (stats.accepted, stats.saved) == (5, 15)


# -- the rule of one key, row by row

INIT, PROCESS, BLOCK = TrafficState.INIT, TrafficState.PROCESS, TrafficState.BLOCK
ACCEPT, WAIT, DECLINE = EnqueueOutcome.ACCEPT, EnqueueOutcome.BLOCK, EnqueueOutcome.DECLINE


@pytest.mark.parametrize(
    ("waiters", "line", "event", "owner", "after", "answer", "line_after"),
    [
        (1, "", "enqueue", "a", PROCESS, ACCEPT, "a"),
        (0, "", "enqueue", "a", PROCESS, ACCEPT, "a"),
        (1, "a", "enqueue", "b", BLOCK, WAIT, "ab"),
        (0, "a", "enqueue", "b", PROCESS, DECLINE, "a"),
        (2, "ab", "enqueue", "c", BLOCK, WAIT, "abc"),
        (1, "ab", "enqueue", "c", BLOCK, DECLINE, "ab"),
        (2, "abc", "enqueue", "d", BLOCK, DECLINE, "abc"),
        (1, "a", "dequeue", "a", INIT, Departure.ENDED, ""),
        (1, "ab", "dequeue", "a", PROCESS, Departure.HANDED_OVER, "b"),
        (2, "abc", "dequeue", "a", BLOCK, Departure.HANDED_OVER, "bc"),
        (1, "ab", "dequeue", "b", PROCESS, Departure.WITHDRAWN, "a"),
        (2, "abc", "dequeue", "b", BLOCK, Departure.WITHDRAWN, "ac"),
        (1, "", "dequeue", "a", INIT, Departure.UNKNOWN, ""),
        (1, "a", "dequeue", "b", PROCESS, Departure.UNKNOWN, "a"),
        (1, "ab", "dequeue", "c", BLOCK, Departure.UNKNOWN, "ab"),
    ],
)
def test_the_table_holds_row_by_row(waiters, line, event, owner, after, answer, line_after):
    automaton = TrafficAutomaton(waiters, line=line)
    assert getattr(automaton, event)(owner) is answer
    assert automaton.state is after
    assert automaton.line == tuple(line_after)
    assert (automaton.head, automaton.waiting) == (
        line_after[0] if line_after else None,
        tuple(line_after[1:]),
    )
    assert TrafficAutomaton().waiters == 1


def test_a_newcomer_displaces_whoever_has_waited_longest_and_waits_last():
    automaton = TrafficAutomaton(2, line="abc")
    assert automaton.displace("d") == "b"
    assert automaton.line == ("a", "c", "d")


@pytest.mark.parametrize(("line", "owner"), [("", "a"), ("a", "b"), ("ab", "a"), ("ab", "b")])
def test_nobody_is_displaced_where_nobody_waits_nor_by_oneself(line, owner):
    automaton = TrafficAutomaton(line=line)
    with pytest.raises(ValueError, match="displace nobody"):
        automaton.displace(owner)
    assert automaton.line == tuple(line)


@pytest.mark.parametrize("owner", ["a", "b"])
def test_an_owner_stands_in_line_once(owner):
    automaton = TrafficAutomaton(5, line="ab")
    with pytest.raises(ValueError, match="already"):
        automaton.enqueue(owner)
    assert automaton.line == ("a", "b")


@pytest.mark.parametrize(("waiters", "line"), [(-1, ""), (0, "ab"), (1, "abc")])
def test_an_automaton_cannot_begin_where_it_could_never_come_to(waiters, line):
    with pytest.raises(ValueError, match="cannot have"):
        TrafficAutomaton(waiters, line=line)


# -- the znodes of a key: any key has a name, no two share one; and where the slots leave somebody

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
    assert place.owns(token)


@given(KEYS, KEYS)
def test_two_keys_never_share_a_name(one, other):
    assert (encoded(one) == encoded(other)) == (one == other)


@given(KEYS, KEYS)
def test_no_znode_of_one_key_is_taken_for_that_of_another(one, other):
    if one != other:
        ours, theirs = KeyZnodes.of("/root", one), KeyZnodes.of("/root", other)
        assert {ours.slot(0), ours.slot(1)}.isdisjoint({theirs.slot(0), theirs.slot(1)})
        assert not ours.owns(theirs.new_token())


@pytest.mark.parametrize("key", [None, 1, 1.5, ("a", "b"), [b"a"]])
def test_a_key_that_is_neither_text_nor_bytes_is_refused_with_its_type(key):
    with pytest.raises(ConfigurationError, match=type(key).__name__):
        encoded(key)


@pytest.mark.parametrize("root", ["", "a", "/", "/a//b", "/a/.", None])
def test_a_root_that_is_no_place_for_slots_is_refused(root):
    with pytest.raises(ConfigurationError):
        validated_root(root)


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


def test_the_older_slot_is_the_heads():
    assert view([A, B]) == view([B, A]) == KeyView(A, B)
    assert view([None, None]).state is TrafficState.INIT
    assert view([None, B]) == KeyView(B, None)
    assert view([None, B]).state is TrafficState.PROCESS
    assert view([A, B]).state is TrafficState.BLOCK


def test_a_slot_is_read_from_what_zookeeper_gave():
    assert holder(1, read("b", 5)) == SlotHolder(1, "b", 5, 7)
    assert holder(1, NoNode("x")) is None
    with pytest.raises(ConnectionLost):
        holder(1, ConnectionLost("x"))
