"""The worker's end of the link: what it reports, and that it never blocks the worker."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any

import pytest
from terms import open_term

from leaderq.clock import now_s
from leaderq.events import EventBus, GuardianLost
from leaderq.running.guardian_link import GuardianLink
from leaderq.term import OpenTerm, Reason
from leaderq.testing import eventually
from leaderq.zookeeper import Credentials, SessionState


class FakeSession:
    """What the link needs of a session."""

    def __init__(self) -> None:
        self.timeout_s = 12.0
        self.state = SessionState.CONNECTED
        self.credentials = Credentials(7, b"secret")
        self.resolved_servers = [("127.0.0.1", 2181)]
        self.listeners: list[Any] = []

    def add_listener(self, listener: Any) -> None:
        self.listeners.append(listener)


class Guardian:
    """The other end."""

    def __init__(self) -> None:
        self.end, theirs = socket.socketpair()
        self.link = GuardianLink(theirs)
        self.session = FakeSession()
        self.lost = threading.Event()
        self.events: list[Any] = []
        self._rest = b""
        self.heard: list[dict[str, Any]] = []

    def attach(self) -> None:
        bus = EventBus()
        bus.subscribe(GuardianLost, self.events.append)
        self.link.attach(self.session, bus, career="c", candidate="a", lost=self.lost.set)  # type: ignore[arg-type]

    def read(self) -> list[dict[str, Any]]:
        self.end.setblocking(False)
        try:
            while data := self.end.recv(1 << 20):
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.heard += [json.loads(line) for line in lines]
        except BlockingIOError:
            pass
        return self.heard

    def reports(self) -> list[dict[str, Any]]:
        return [message for message in self.read() if "term" in message]


@pytest.fixture
def guardian():
    made = Guardian()
    yield made
    made.end.close()
    assert made.link._session is None or made.lost.wait(30)  # the thread that listens has ended
    made.link._link.close()


def term(lease_s: float = 100.0) -> OpenTerm:
    return open_term(3, lasts_s=lease_s)


def test_the_session_is_told_with_its_servers_at_each_connection(guardian):
    guardian.attach()
    guardian.session.listeners[0](SessionState.SUSPENDED)
    guardian.session.listeners[0](SessionState.CONNECTED)
    told = [message for message in guardian.read() if "session" in message]
    assert len(told) == 2
    assert told[0] | {"password": ""} == {
        "session": 7,
        "password": "",
        "timeout_s": 12.0,
        "servers": [["127.0.0.1", 2181]],
    }


def test_a_close_is_told_when_it_is_true_and_not_before(guardian):
    guardian.attach()
    guardian.session.listeners[0](SessionState.CLOSED)
    assert {"session": None} not in guardian.read()
    guardian.link.forget_session()
    assert {"session": None} in guardian.read()


def test_a_term_that_is_on_is_reported_with_the_end_of_its_lease(guardian):
    guardian.attach()
    led = term()
    guardian.link.watch_term(led, 10.0)
    first = eventually(guardian.reports)[0]
    assert first == {
        "term": 3,
        "lease_until_s": led.deadline,
        "grace_s": 1.0,
        "budget_until_s": None,
        "handing_over": False,
    }


def test_a_deposing_reason_ends_the_lease_now_whatever_the_budget(guardian):
    guardian.attach()
    led = term()
    guardian.link.watch_term(led, 10.0)
    eventually(guardian.reports)
    led.wind_up(Reason.NODE_DELETED)
    report = eventually(
        lambda: next((r for r in guardian.reports() if r["lease_until_s"] < led.deadline), None)
    )
    assert report["lease_until_s"] <= now_s()
    assert report["budget_until_s"] is None


def test_a_lease_that_ran_out_counts_from_its_deadline(guardian):
    guardian.attach()
    led = term(0.2)
    deadline = led.deadline
    guardian.link.watch_term(led, 10.0)
    assert not led.wait(10)
    assert led.reason is Reason.LEASE
    guardian.link.report(handing_over=led)
    report = eventually(lambda: next((r for r in guardian.reports() if r["handing_over"]), None))
    assert report["lease_until_s"] == deadline


def test_a_planned_end_has_its_budget_and_its_lease_goes_on(guardian):
    guardian.attach()
    led = term()
    guardian.link.watch_term(led, 10.0)
    eventually(guardian.reports)
    led.wind_up(Reason.STEP_DOWN)
    report = eventually(lambda: next((r for r in guardian.reports() if r["budget_until_s"]), None))
    assert report["lease_until_s"] == led.deadline
    assert 9 < report["budget_until_s"] - now_s() <= 10
    guardian.link.report()
    assert guardian.reports()[-1]["budget_until_s"] == report["budget_until_s"]


def test_a_shorter_time_out_makes_a_shorter_grace_and_it_stays(guardian):
    guardian.attach()
    led = term()
    guardian.link.watch_term(led, 10.0)
    eventually(guardian.reports)
    guardian.session.timeout_s = 1.2
    guardian.link.report(handing_over=led)
    guardian.session.timeout_s = 12.0
    guardian.link.report(handing_over=led)
    assert [r["grace_s"] for r in guardian.reports()][-2:] == pytest.approx([0.1, 0.1])


def test_nothing_of_a_term_is_reported_after_its_code_has_returned(guardian):
    guardian.attach()
    led = term()
    guardian.link.watch_term(led, 10.0)
    guardian.link.forget_term(led)
    led.wind_up(Reason.LEASE)
    guardian.link.report(handing_over=led)
    assert guardian.reports()[-1] == {"term": None}


def test_a_guardian_that_does_not_read_never_blocks_the_worker_and_hears_the_newest_when_it_does(
    guardian,
):
    guardian.attach()
    led = term()
    guardian.link.watch_term(led, 10.0)
    for _ in range(600):
        guardian.link.report(handing_over=led)
        guardian.session.listeners[0](SessionState.CONNECTED)
    guardian.link.forget_term(led)
    guardian.link.use_servers("127.0.0.1:2181", None)
    eventually(lambda: {"term": None} in guardian.read())
    assert guardian.reports()[-1] == {"term": None}
    assert len(guardian.reports()) < 600  # only the newest waited
    assert {"zookeeper": "127.0.0.1:2181", "security": None} in guardian.read()


def test_the_end_of_the_guardian_is_said_and_the_worker_told(guardian):
    guardian.attach()
    guardian.end.close()
    assert guardian.lost.wait(30)
    assert [event.pid for event in guardian.events] == [os.getpid()]
    guardian.link.forget_session()  # harmless


def test_of_several_terms_the_one_is_reported_whose_code_must_be_gone_first(guardian):
    guardian.attach()
    guardian.attach()
    assert guardian.link.is_shared
    assert len(guardian.session.listeners) == 1
    long, short = term(lease_s=100.0), term(lease_s=50.0)
    for led in (long, short):
        guardian.link.watch_term(led, 10.0)
    guardian.link.report(handing_over=long)
    newest = eventually(guardian.reports)[-1]
    assert (newest["lease_until_s"], newest["handing_over"]) == (short.deadline, False)
    long.wind_up(Reason.FENCED)
    guardian.link.report()
    assert guardian.reports()[-1]["handing_over"], "the one that was deposed ends first now"
    guardian.link.forget_term(long)
    assert guardian.reports()[-1]["lease_until_s"] == short.deadline
    guardian.link.forget_term(short)
    assert guardian.reports()[-1] == {"term": None}
