"""Snapshots of a small installation, with one of each trouble, as the page may be given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from leaderq.admin.careers import CareerState, ShownReport
from leaderq.admin.queue_states import Contents, Listing, QueueState
from leaderq.admin.snapshot import PageSnapshot, PlottedFigures
from leaderq.election import Member, TermRecord, View
from leaderq.kafka.consuming.report import DrainReport, PartitionLag
from leaderq.queues.admin import DeadItem
from leaderq.queues.admin.contents import read
from leaderq.queues.wire.payload import Note, encode
from leaderq.schedules.definition import When
from leaderq.schedules.operating import ScheduleView
from leaderq.schedules.record import (
    PassedOver,
    ScheduleRecord,
    ScheduleWishes,
    TickGap,
    TickOutcome,
    TickRun,
)

NOW_MS = 1_795_000_000_000
NOW = NOW_MS / 1000
NASTY = "<script>alert('x')</script>&\"\u202e"
"""What anybody may have written into a znode."""


def term(number: int, began: float, ended: float | None = None, **more: Any) -> TermRecord:
    """A term of a candidate on a host; ``began`` and ``ended`` are so many seconds ago."""
    return TermRecord(
        number=number,
        candidate=f"host-{'abc'[number % 3]}",
        host=f"host-{'abc'[number % 3]}.example",
        pid=4000 + number,
        began=NOW - began,
        ended=None if ended is None else NOW - ended,
        **{"version": "2.4.1", **more},
    )


def view(career: str = "billing", *, leads: bool = True, **more: Any) -> View:
    """Five terms, of which the newest goes on if it ``leads``."""
    past = (
        term(4, 9000, 4000.2, reason="step-down"),
        term(3, 20000, None),
        term(2, 30000, 21000, reason="career-failed", error="ValueError: no such customer"),
        term(1, 40000, 30000.04, reason="withdrawn"),
    )
    newest = term(5, 4000, None if leads else 60, reason=None if leads else "withdrawn")
    waiting = Member("host-b", "host-b.example", 17, None, "2.4.1", "0.1.0", "b:Billing")
    given: dict[str, Any] = {
        "career": career,
        "leader": newest.candidate if leads else None,
        "host": newest.host,
        "pid": newest.pid,
        "term": 5,
        "stage": "execution" if leads else None,
        "began": newest.began,
        "ended": newest.ended,
        "reason": newest.reason,
        "paused": False,
        "candidates": ("host-c", "host-b") if leads else (),
        "members": (Member("host-c", "host-c.example", 4005), waiting) if leads else (),
        "history": (newest, *past),
    }
    return View(**{**given, **more})


def drain(lag: int = 1200, *, fresh: bool = True, **more: Any) -> ShownReport:
    given: dict[str, Any] = {
        "term": 5,
        "at": NOW - 3,
        "partitions": {"clicks-0": PartitionLag(10, 10 + lag, lag)},
        "rate_per_s": 310.0,
        "catch_up_s": 4.0,
        "lease_left_s": 6.4,
        "in_hand": 500,
    }
    return ShownReport(DrainReport(**{**given, **more}), 3.0, fresh)


def schedule(name: str = "nightly", *, next_in_s: float = 3600, **more: Any) -> ScheduleView:
    run = TickRun(NOW_MS - 86_400_000, NOW_MS - 86_400_000, 4, "host-b", ended=NOW_MS - 86_390_000)
    record = ScheduleRecord(
        last=NOW_MS - 86_400_000,
        when=When("30 2 * * *", "Europe/Berlin"),
        next=NOW_MS + int(next_in_s * 1000),
        history=(
            TickGap(NOW_MS - 300_000_000, NOW_MS - 200_000_000, 2, PassedOver.MISSED),
            replace(run, outcome=TickOutcome.DONE),
        ),
    )
    return ScheduleView(name, replace(record, **more), ScheduleWishes())


def item(name: str, text: str = "a text", **note: Any) -> Any:
    data = encode([text.encode()], Note(**note) if note else None)
    return read(name, data, NOW_MS - 90_000, 1)


def letter(name: str, error: str = "TimeoutError: nobody answers") -> DeadItem:
    return DeadItem(item(name, attempt=5, reason="attempts", error=error, died_ms=NOW_MS - 5000))


def installation(careers: int = 6) -> PageSnapshot:
    """Careers in each condition, and more that are led; queues; schedules."""
    gone = view("reports", leads=False)
    cold = view("invoices", leads=False, members=(Member("x"),), candidates=("x",))
    asked = {"at": NOW - 90, "by": "alice", "what": "pause", "why": "the database is moved"}
    states = [
        CareerState("billing", view(), drain()),
        CareerState("clicks", view("clicks"), drain(held_up="clicks-0@71: ConnectionRefused")),
        CareerState("reports", gone),
        CareerState("invoices", cold),
        CareerState("mail", view("mail", paused=True, asked=(asked,))),
        CareerState("night", view("night"), None, (schedule(), schedule("late", next_in_s=-600))),
        CareerState("spoilt", None, problem="the znode /leaderq/spoilt/term holds b'x'"),
    ]
    states += [CareerState(f"team-{n:03}", view(f"team-{n:03}"), drain(n)) for n in range(careers)]
    listing = Listing(NOW_MS, "delay", NOW_MS - 90_000, 40, 2)
    queues = (
        QueueState("/mail", False, 42, None, 3, 2, listing=listing),
        QueueState("/jobs", True, 7, 2, 0, 1, is_paused=True, listing=Listing(NOW_MS, "dyno")),
        QueueState("/huge", False, 1_000_000, too_many=True),
    )
    letters = (letter("queue-0000000003"), letter("queue-0000000004", NASTY))
    contents = Contents((item("queue-0000000009"), item("queue-0000000010", NASTY)), letters)
    frames = tuple(
        PlottedFigures(NOW_MS - 2000 * back, {"/mail": 40 + back % 7}, {"billing": 900 + 9 * back})
        for back in range(60, -1, -1)
        if not 20 < back < 35  # nobody looked
    )
    at = NOW_MS - 1000
    return PageSnapshot(7, at, tuple(states), queues, {"/mail": contents}, frames)
