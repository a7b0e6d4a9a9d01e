"""Processes that are killed and frozen, and sixteen of them at once whose history is checked."""

from __future__ import annotations

import json
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from turns import TIMES, Event, TurnHistory, What, faults
from workers import ROOT, WorkerProcess

from leaderq.coalescing.automaton import TrafficState
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze
from leaderq.zookeeper import Session

Start = Callable[..., WorkerProcess]


@pytest.fixture
def started(zookeeper_server: Any, znode_root: str) -> Iterator[Start]:
    """Worker processes; ended after the test.

    Their session time-out is what is waited for when one is killed, and what the others may be
    without a processor.
    """
    made: list[WorkerProcess] = []

    def start(
        name: str, *, is_ready: bool = True, address: str = "", timeout_s: float = 10.0
    ) -> WorkerProcess:
        made.append(
            WorkerProcess((address or zookeeper_server.address) + znode_root, ROOT, name, timeout_s)
        )
        if is_ready:
            assert made[-1].says() == "ready"
        return made[-1]

    yield start
    for one in made:
        one.send(signal.SIGCONT)
        one.end()


def test_the_waiter_takes_over_from_a_killed_head(started, coordinator_of):
    look = coordinator_of().look
    head, waiter = started("a"), started("b")
    assert head.does("enqueue k").startswith("ACCEPT")
    waiter.tell("enqueue k")
    number = eventually(lambda: look("k").waiter).number
    head.send(signal.SIGKILL)
    assert waiter.says() in (f"BLOCK {number}", f"ACCEPT {number}")
    assert waiter.does("current") == "True"
    assert waiter.does("dequeue") == "True"
    assert look("k").state is TrafficState.INIT


def test_a_frozen_head_is_refused_by_the_server_when_it_thaws(started, coordinator_of, session):
    session.create("/data", b"")
    head, waiter = started("a"), started("b")
    assert head.does("enqueue k").startswith("ACCEPT")
    assert head.does("write /data before") == "written"
    waiter.tell("enqueue k")
    eventually(lambda: coordinator_of().look("k").waiter)
    freeze(head.process.pid)
    assert waiter.says().startswith(("BLOCK", "ACCEPT"))
    assert waiter.does("write /data now") == "written"
    head.tell("current")
    head.tell("write /data late")
    head.send(signal.SIGCONT)
    assert head.says() == "False"
    assert head.says() in ("TokenOver", "ConnectionLost", "NotConnected")
    assert eventually(lambda: head.does("write /data late") == "TokenOver")
    assert session.get("/data")[0] == b"now"
    assert head.does("dequeue") == "False"
    assert waiter.does("current") == "True"


@pytest.mark.timeout(300 * TIMES)
@pytest.mark.parametrize("killed", [0, 4])
def test_sixteen_processes_never_make_two_heads_nor_two_waiters(started, session, killed):
    timeout_s = 10.0 if killed else 30.0
    workers = [started(str(number), is_ready=False, timeout_s=timeout_s) for number in range(16)]
    check(session, workers, rounds=40 * TIMES, killed=killed)


@pytest.mark.timeout(300 * TIMES)
def test_sixteen_processes_whose_waiters_give_up_and_die_leave_no_declined_request_uncovered(
    started, session
):
    for path in ("/runs", "/declined", ROOT):
        session.ensure_path(path)
    workers = [started(str(number), is_ready=False) for number in range(16)]
    for one in workers:
        assert one.says(120) == "ready"
    for one in workers:
        one.tell(f"crowd {6 * TIMES}")
    for victim in workers[:3]:
        reached = len(session.children("/runs"))
        eventually(
            lambda reached=reached: len(session.children("/runs")) > reached + 10, timeout_s=60
        )
        victim.send(signal.SIGKILL)
    for one in workers[3:]:
        assert one.says(200 * TIMES) == "done"
    for one in workers[3:]:
        assert one.does("idle", 100) == "True"
    session.sync("/runs")
    events: list[Event] = []  # on the clock: was every declined request covered?
    runs: list[tuple[int, str, str, str]] = []  # in the order of the store: did two run at once?
    for name in session.children("/runs"):
        data, stat = session.get(f"/runs/{name}")
        key, began_s = json.loads(data)
        events += [Event(began_s, key, name, What.BEGAN), Event(began_s, key, name, What.ENDED)]
        runs.append((stat.czxid, "begin", key, name))
        if stat.version > 0:
            runs.append((stat.mzxid, "end", key, name))
    check_runs([run for _, *run in sorted(runs)], killed=3)
    declined = [
        one
        for name in session.children("/declined")
        for one in json.loads(session.get(f"/declined/{name}")[0])
    ]
    for number, (key, asked_s) in enumerate(declined):
        events += [
            Event(asked_s, key, number, What.CAME),
            Event(asked_s, key, number, What.DECLINED),
        ]
    print(f"16 processes, 3 killed: {TurnHistory(events)}")
    assert len(declined) > 10
    assert faults(events) == []


def check(session: Session, workers: list[WorkerProcess], *, rounds: int, killed: int = 0) -> None:
    """Let all work on one key, kill some, and look whether the promise was kept at every moment."""
    for path in ("/history", "/answers", ROOT):
        session.ensure_path(path)
    for one in workers:
        assert one.says(120) == "ready"
    crowd = Crowd()
    with session.watch_tree(ROOT, lambda _: crowd.note(session)):
        for one in workers:
            one.tell(f"rounds {rounds} hot")
        for victim in workers[:killed]:
            eventually(lambda: len(session.children("/history")) > 20, timeout_s=60)
            victim.send(signal.SIGKILL)
        for one in workers[killed:]:
            assert one.says(200 * TIMES) == "done"
    eventually(lambda: session.children(ROOT) == [], timeout_s=30)
    session.sync("/history")
    names = sorted(session.children("/history"))
    history = [session.get(f"/history/{name}")[0].decode().split() for name in names]
    assert len(history) > 20  # on a busy machine most rounds end with a decline
    check_heads(history, killed)
    assert 1 <= crowd.most <= 2
    answers = [
        json.loads(session.get(f"/answers/{name}")[0]) for name in session.children("/answers")
    ]
    check_declined([one for each in answers for one in each], killed)


class Crowd:
    """The most who were ever seen to have a slot."""

    def __init__(self) -> None:
        self.most = 0

    def note(self, session: Session) -> None:
        session.children_async(ROOT).add_done_callback(self._seen)

    def _seen(self, answer: Any) -> None:
        if answer.exception() is None:
            self.most = max(
                self.most, sum(len(name.rpartition("~")[2]) == 32 for name in answer.result())
            )


def check_heads(history: list[list[str]], killed: int) -> None:
    """In the order in which the store has it: each run ends before the next begins, and fencing
    numbers rise. The runs of those that were killed end with the next one's begin.
    """
    numbers = [int(number) for what, number, _ in history if what == "begin"]
    assert numbers == sorted(set(numbers))
    check_runs([[what, "hot", number] for what, number, _ in history], killed)


def check_runs(history: list[list[str]], killed: int) -> None:
    """Of ``[what, key, run]`` in the order in which the store has it: each run ends before the next
    of its key begins.
    """
    ended = {run for what, _, run in history if what == "end"}
    cut_short: dict[str, list[str]] = defaultdict(list)
    events: list[Event] = []
    for at, (what, key, run) in enumerate(history):
        if what == "begin":
            events += [Event(at - 0.5, key, one, What.DIED) for one in cut_short[key]]
            cut_short[key] += [] if run in ended else [run]
        events.append(Event(at, key, run, What.BEGAN if what == "begin" else What.ENDED))
    for key, dead in cut_short.items():
        events += [Event(len(history), key, one, What.DIED) for one in dead]
    assert faults(events) == []
    assert sum(map(len, cut_short.values())) <= killed


def check_declined(answers: list[list[Any]], killed: int) -> None:
    """Each declined request is covered: while it was asked somebody waited, who had not begun.

    Its turn may have come before whoever waited had read its place, and it is told ACCEPT then.
    """
    begun = [(asked_s, begun_s) for outcome, asked_s, begun_s in answers if outcome != "DECLINE"]
    declined = [
        (asked_s, answered_s) for outcome, asked_s, answered_s in answers if outcome == "DECLINE"
    ]
    assert "BLOCK" in {outcome for outcome, _, _ in answers}
    assert declined
    if not killed:
        for asked_s, answered_s in declined:
            assert any(since_s < answered_s and begun_s > asked_s for since_s, begun_s in begun)
