"""Processes that are killed and frozen. Many of them at every moment: ``tests/simulation``."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from workers import ROOT, WorkerProcess

from leaderq.coalescing.automaton import TrafficState
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze

Start = Callable[..., WorkerProcess]


@pytest.fixture
def started(zookeeper_server: Any, znode_root: str) -> Iterator[Start]:
    """Worker processes; ended after the test."""
    made: list[WorkerProcess] = []

    def start(name: str) -> WorkerProcess:
        made.append(WorkerProcess(zookeeper_server.address + znode_root, ROOT, name, 10.0))
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
