"""The rule of one key, row by row. Any events beside a model: ``test_coordinator_model.py``."""

from __future__ import annotations

import pytest

from leaderq.coalescing import Departure, EnqueueOutcome, TrafficAutomaton, TrafficState

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
