from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from dashboard_values import NASTY, schedule, view

from leaderq.admin.careers import Condition, career_row, condition_of, in_order
from leaderq.admin.queue_states import queue_row
from leaderq.admin.snapshot import PageSnapshot, reading
from leaderq.base.clock import calendar_s, now_ms
from leaderq.cli.top_rows import CAREER_COLUMNS, QUEUE_COLUMNS, career_lines, fitting, last_events
from leaderq.dashboard.screens import PageScreen, ScreenKind, ScreenOptions, draw
from leaderq.dyno import DynoQueue, Message
from leaderq.election.layout import Layout, Wishes
from leaderq.election.layout import encode as encoded
from leaderq.kafka.consuming.report import DrainReport, PartitionLag
from leaderq.kafka.consuming.report import encode as encoded_report
from leaderq.queues import DistributedQueue
from leaderq.schedules.record import ScheduleRecord, ScheduleWishes, TickRun, encode_wishes
from leaderq.schedules.record import encode as encoded_schedule
from leaderq.zookeeper import Create, Session

ROOT = "/leaderq"
LATCH = "_c_00000000-0000-4000-8000-000000000000-latch-0000000000"
WRONG = (None, "x", 10**300, float("nan"), [], NASTY)
GARBAGE = (b"", b"\xff\x00\x01", b"[" * 5000, b"null", b"7", b'"x"', b'[{"a": 1}]', b"{9")
OPTIONS = ScreenOptions(actions=True, payloads=True)


def good() -> dict[str, Any]:
    """What the znodes of a career that is led hold, by the attribute of ``Layout``."""
    asked = ({"at": calendar_s(), "by": "alice", "what": "pause", "why": "a move"},)
    newest, *past = view().history
    record = json.loads(encoded(newest))
    record |= {"id": LATCH, "past": [json.loads(encoded(one)) for one in past]}
    run = TickRun(now_ms(), now_ms(), 5, "host-c")
    ticks = schedule().record
    assert isinstance(ticks, ScheduleRecord)
    later_s = calendar_s() + 600  # it is fresh however long it takes to store them all
    report = DrainReport(5, later_s, None, {"t-0": PartitionLag(1, 9, 8)}, 1.0, 1.0, 4.0)
    found = {
        "term": json.dumps(record),
        "control": encoded(Wishes(asked=asked)),
        "progress": encoded_report(report),
        "schedules": encode_wishes({"s": ScheduleWishes(run=2)}),
        "s": encoded_schedule(replace(ticks, running=run)),
    }
    return {name: json.loads(text) for name, text in found.items()}


def spoilt(value: Any) -> Iterator[Any]:
    """``value`` with one part of it replaced, left out, or joined by what is not known."""
    if isinstance(value, dict):
        yield {**value, "of-the-future": {"a": [1]}}
        for name, inner in value.items():
            yield {key: one for key, one in value.items() if key != name}
            yield from ({**value, name: wrong} for wrong in (*WRONG, *spoilt(inner)))
    elif isinstance(value, list):
        for at, inner in enumerate(value[-2:]):
            yield from ([*value[:at], wrong, *value[at + 1 :]] for wrong in (7, *spoilt(inner)))


def all_spoilt() -> Iterator[dict[str, bytes]]:
    """The znodes of careers, of each of which one is spoilt."""
    whole = good()
    plain = {name: json.dumps(value).encode() for name, value in whole.items()}
    for name, value in whole.items():
        for wrong in spoilt(value):
            yield {**plain, name: json.dumps(wrong).encode()}
        for data in GARBAGE:
            yield {**plain, name: data}


def stored(session: Session, careers: dict[str, dict[str, bytes]]) -> None:
    for career, znodes in careers.items():
        layout = Layout(ROOT, career)
        requests = [Create(layout.base, b""), Create(layout.candidates, b"")]
        requests += [Create(layout.candidate(LATCH), b"host-c"), Create(layout.processes, b"\xff")]
        requests.append(Create(layout.process(7), b"\xff{"))
        for name in ("term", "control", "progress", "schedules"):
            requests.append(Create(getattr(layout, name), znodes[name]))
        session.multi([*requests, Create(f"{layout.schedules}/s", znodes["s"])])


def shown(snapshot: PageSnapshot) -> str:
    many = (ScreenKind.CAREERS, ScreenKind.QUEUES, ScreenKind.SCHEDULES)
    screens = [PageScreen(kind) for kind in many]
    screens += [PageScreen(ScreenKind.CAREER, one.career) for one in snapshot.careers]
    screens += [PageScreen(ScreenKind.QUEUE, one.path) for one in snapshot.queues]
    drawn = [draw(one, snapshot, OPTIONS, now_ms()) for one in screens]
    careers = [career_row(*each, now_ms()) for each in in_order(snapshot.careers, "", now_ms())]
    queues = [queue_row(one, now_ms()) for one in snapshot.queues]
    fitting(CAREER_COLUMNS, careers, 300)
    fitting(QUEUE_COLUMNS, queues, 300)
    lines = [line for one in snapshot.careers for line in career_lines(one, now_ms())]
    assert all(line.isprintable() for line in (*lines, *last_events(snapshot, 50)))
    return "".join(drawn)


def test_a_spoilt_record_spoils_nothing_but_itself(session):
    session.ensure_path(ROOT)
    plain = {name: json.dumps(value).encode() for name, value in good().items()}
    careers = {f"c{number}": each for number, each in enumerate(all_spoilt())}
    careers[("<script>alert(1)<script>" + "w" * 200)[:200]] = plain
    stored(session, {**careers, "sound": plain})
    snapshot = reading(session, ROOT, ())(PageSnapshot(), frozenset())
    assert {one.career for one in snapshot.careers} == {*careers, "sound"}
    sound = snapshot.career("sound")
    assert condition_of(sound, now_ms()) is Condition.LED
    html = shown(snapshot)
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)" in html


@pytest.mark.parametrize("data", [b"\xff\x00garbage", b'{"a": [', b"[" * 5000])
def test_garbage_below_queues_is_shown_as_such(session, data):
    with DistributedQueue(session, "/plain") as queue:
        queue.put_many([b"a", b"b"])
    session.ensure_path("/plain-meta/control")
    session.ensure_path("/plain-dead/queue-0000000001")
    with DynoQueue(session, "/dyno", shards=["s"]) as dyno:
        dyno.push([Message(id="1", payload=b"a"), Message(id="2", payload=b"b")])
        dyno.pop(1, 30)[0].kill()
        dyno.pop(1, 30)

    def spoil(path: str) -> None:
        for name in session.children(path):
            inner = f"{path.rstrip('/')}/{name}"
            spoil(inner)
            if path != "/" or name != "zookeeper":
                session.set(inner, data)

    for path in ("/plain", "/plain-meta", "/plain-dead", "/dyno"):
        spoil(path)
        session.set(path, data)
    session.create(f"/plain/{NASTY.replace('/', '')}", b"")
    read, wanted = reading(session, ROOT, ("/",)), frozenset({"/plain", "/dyno"})
    snapshot = read(read(PageSnapshot(), wanted), wanted)
    assert {one.path for one in snapshot.queues} >= {"/plain", "/dyno"}
    assert all(one.depth for one in snapshot.queues)
    assert "<script>" not in shown(snapshot)
