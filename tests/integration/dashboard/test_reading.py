from __future__ import annotations

import shutil
from typing import Any

import pytest

from leaderq.admin import queue_states
from leaderq.admin.actions import Action, Deed, carry_out
from leaderq.admin.careers import Condition, condition_of
from leaderq.admin.snapshot import PageSnapshot, reading
from leaderq.base.clock import now_ms
from leaderq.dashboard.refresher import Refresher
from leaderq.dyno import DynoQueue, Message
from leaderq.election import Operator, TermRecord
from leaderq.election.layout import Layout, encode
from leaderq.errors import ConfigurationError, RequestRefused
from leaderq.observability import figures
from leaderq.observability.figures import FigureSource, read_figures
from leaderq.queues import DistributedDelayQueue, DistributedQueue
from leaderq.queues.admin import DeadItem, QueueAdmin
from leaderq.queues.wire.payload import Note
from leaderq.queues.wire.payload import encode as framed
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.schedules.definition import When
from leaderq.schedules.operating import ScheduleOperator
from leaderq.schedules.record import ScheduleRecord
from leaderq.schedules.record import encode as encoded
from leaderq.testing import ZooKeeperServer, eventually
from leaderq.zookeeper import Session, connect

ROOT = "/leaderq"
READS = {"GetChildren", "MultiRead", "ChildData", "Exists"}


@pytest.fixture
def sent(session, monkeypatch) -> list[str]:
    told: list[str] = []
    send_all = session._send_all

    def noting(requests: Any, *more: Any) -> Any:
        told.extend(map(repr, requests))
        return send_all(requests, *more)

    monkeypatch.setattr(session, "_send_all", noting)
    return told


def kinds(sent: list[str]) -> set[str]:
    return {one.partition("(")[0] for one in sent}


def put(session: Session, path: str, count: int, *, dead: int = 0) -> None:
    with DistributedQueue(session, path) as queue:
        queue.put_many([b"item %d" % number for number in range(count)])
    paths = QueuePaths(path)
    session.ensure_path(paths.dead)
    for _ in range(dead):
        note = Note(attempt=5, reason="attempts", error="ValueError: no", died_ms=now_ms())
        session.create(f"{paths.dead}/queue-", framed([b"letter"], note), sequential=True)


def stood_for(session: Session, career: str, *, schedules: int = 0) -> None:
    """What a career whose leader was killed has left."""
    layout = Layout(ROOT, career)
    for path in (layout.candidates, layout.processes, layout.schedules):
        session.ensure_path(path)
    record = TermRecord(number=1, candidate="a", id="x", host="h", began=1.0, stage="execution")
    session.create(layout.term, encode(record))
    for number in range(schedules):
        tick = ScheduleRecord(now_ms(), When("0 2 * * *"), now_ms() + 1000)
        session.create(f"{layout.schedules}/s{number}", encoded(tick))


def read_twice(session: Session, *patterns: str, wanted: str | None = None) -> PageSnapshot:
    """The second reading; the first one lists no queues but the one that is wanted."""
    read = reading(session, ROOT, patterns or ("/",))
    looked_at = frozenset(filter(None, (wanted,)))
    return read(read(PageSnapshot(), looked_at), looked_at)


def test_a_refresh_takes_as_many_requests_whatever_a_queue_holds_and_writes_nothing(session, sent):
    read: dict[str, list[int]] = {"/few": [], "/many": []}
    for name, count in (("/few", 3), ("/many", 20_000)):
        put(session, name, count, dead=2)
        reader, snapshot = reading(session, ROOT, (name,)), PageSnapshot()
        for _ in range(3):
            sent.clear()
            snapshot = reader(snapshot, frozenset())
            read[name].append(len(sent))
            assert kinds(sent) <= READS
    assert read["/few"] == read["/many"]
    first, second, third = read["/many"]
    assert first == third < second <= 6  # only the second lists: nothing has changed since


def test_what_is_read_of_a_queue_that_is_looked_at_is_bounded(session, sent):
    for name, count, dead in (("/some", 60, 60), ("/many", 5_000, 200)):
        put(session, name, count, dead=dead)
        sent.clear()
        seen = read_twice(session, name, wanted=name).contents[name]
        assert len(sent) <= 120  # of two readings, with the sizes of a random sample
        assert kinds(sent) <= READS
        assert len(seen.items) == queue_states.SHOWN_ITEMS
        assert len(seen.letters) == queue_states.SHOWN_LETTERS
        assert seen.items[0].items == [b"item 0"]


def test_two_hundred_careers_are_read_a_few_at_a_time(session, sent):
    for number in range(200):
        stood_for(session, f"team-{number:03}", schedules=number % 2)
    sent.clear()
    snapshot = reading(session, ROOT, ())(PageSnapshot(), frozenset())
    assert len(sent) <= 50
    assert kinds(sent) <= READS
    found = [condition_of(one, now_ms()) for one in snapshot.careers]
    assert found == [Condition.LEADERLESS] * 200


def test_queues_of_all_kinds_are_told_by_what_is_beside_them(session):
    put(session, "/plain", 2, dead=1)
    with DistributedDelayQueue(session, "/later") as queue:
        queue.put(b"now", delay_s=0.001)
        queue.put(b"then", delay_s=3600)
    with DynoQueue(session, "/dyno", shards=["s"]) as dyno:
        dyno.push([Message(payload=b"a"), Message(payload=b"b", timeout_s=3600)])
    session.ensure_path("/other/child")
    found = {one.path: one for one in read_twice(session).queues}
    assert sorted(found) == ["/dyno", "/later", "/plain"]
    plain, later, messages = found["/plain"], found["/later"], found["/dyno"]
    assert (plain.depth, plain.dead, plain.listing.kind) == (2, 1, "plain")
    assert (later.listing.kind, later.listing.due, later.listing.delayed) == ("delay", 1, 1)
    assert (messages.depth, messages.listing.due, messages.listing.delayed) == (2, 1, 1)
    assert all(one.listing.oldest_ms for one in found.values())
    contents = read_twice(session, wanted="/dyno").contents["/dyno"]
    assert [one.items for one in contents.items] == [[b"a"], [b"b"]]


def test_a_queue_of_too_many_items_is_counted_and_not_listed(session, monkeypatch):
    monkeypatch.setattr(queue_states, "MOST_LISTED", 5)
    put(session, "/huge", 6)
    snapshot = read_twice(session, "/huge", wanted="/huge")
    state = snapshot.queue("/huge")
    assert (state.depth, state.too_many, state.listing) == (6, True, None)
    assert "too many" in str(snapshot.contents["/huge"].problem)


def test_what_is_no_queue_that_was_named_is_not_read(session):
    session.create("/secret", b"of somebody")
    session.create("/secret/queue-0000000000", b"of somebody")
    snapshot = read_twice(session, "/named", wanted="/secret")
    assert snapshot.contents["/secret"].problem == "there is no such queue"
    assert [one.path for one in snapshot.queues] == ["/named"]


def test_what_was_asked_of_a_career_stands_in_its_history_with_the_name(session):
    stood_for(session, "c", schedules=1)
    for deed, detail in ((Deed.PAUSE, ""), (Deed.RESUME, ""), (Deed.RUN_NOW, "s0")):
        carry_out(session, ROOT, Action(deed, "c", detail), "alice", "a\nmove " + "x" * 500)
    view = Operator(session, "c", root=ROOT).view()
    assert [(one["by"], one["what"]) for one in view.asked] == [
        ("alice", "run-now s0"),
        ("alice", "resume"),
        ("alice", "pause"),
    ]
    assert {len(one["why"]) for one in view.asked} == {240}
    assert not view.paused
    (schedule,) = ScheduleOperator(session, Layout(ROOT, "c").schedules).look()
    assert schedule.wishes.run == 1
    for _ in range(12):
        carry_out(session, ROOT, Action(Deed.PAUSE, "c"), "bob", "")
    assert len(Operator(session, "c", root=ROOT).view().asked) == 10
    with pytest.raises(RequestRefused, match="nobody leads"):
        carry_out(session, ROOT, Action(Deed.STEP_DOWN, "c"), "alice", "")


def test_dead_letters_are_sent_back_one_or_all(session, caplog):
    put(session, "/q", 0, dead=3)
    admin = QueueAdmin(session, QueuePaths("/q"))
    letters: list[DeadItem] = list(admin.dead_letters.browse())
    one = Action(Deed.REDRIVE, "/q", letters[1].name)
    assert carry_out(session, ROOT, one, "alice", "mended") == "1 sent back to /q"
    assert "operator acts by=alice do=redrive of=/q" in caplog.text
    with pytest.raises(ConfigurationError, match="not there any more"):
        carry_out(session, ROOT, one, "alice", "again")
    assert carry_out(session, ROOT, Action(Deed.REDRIVE_ALL, "/q"), "alice", "") == (
        "2 sent back to /q"
    )
    assert (admin.depth(), admin.dead_letters.count()) == (3, 0)


def test_dead_messages_of_a_dyno_queue_are_sent_back(session):
    with DynoQueue(session, "/d", shards=["s"]) as queue:
        queue.push(Message("a", b"a"))
        queue.pop(1, 30)[0].kill()
        assert read_twice(session, wanted="/d").contents["/d"].letters[0].note.origin == "a"
        done = carry_out(session, ROOT, Action(Deed.REDRIVE, "/d", "a"), "alice", "")
        assert done == "1 sent back to /d"
        assert queue.size() == 1


MANY = 1_000


def deep_queue(session: Session) -> DistributedQueue[bytes]:
    queue = DistributedQueue(session, "/q")
    queue.start()
    queue.put_many([b"item %d" % number for number in range(MANY + 1)])
    with queue.take():  # a consumer here has seen them all
        pass
    return queue


def test_a_scrape_of_a_deep_queue_lists_none_of_its_items(session, sent, monkeypatch):
    monkeypatch.setattr(figures, "_offers", [])
    monkeypatch.setattr(figures, "_DEPTHS_S", 0.1)

    def ready() -> float | None:
        return read_figures()[FigureSource.QUEUE, "/q"].get("ready")

    def noted_s() -> list[float]:
        return [one[2]()._noted_s for one in figures._offers if one[1] == "/q"]

    with deep_queue(session):
        eventually(lambda: ready() == MANY)  # asked once, and looked at by the queue's own thread
        sent.clear()
        before = noted_s()
        assert ready() == MANY
        assert sent == []
        eventually(lambda: noted_s() != before)
    assert not [one for one in sent if "GetChildren" in one and "'/q'" in one]


def test_a_server_that_is_restarted_or_comes_back_empty_is_found_again():
    with ZooKeeperServer() as server, connect(server.address, timeout_s=2.0) as session:
        stood_for(session, "c")
        refresher = Refresher(reading(session, ROOT, ("/",)), 0.05)
        refresher.start()
        try:
            assert refresher.after().result(60).problem is None
            for careers in (["c"], []):
                server.kill()
                eventually(lambda: refresher.after().result(60).problem is not None)
                assert [one.career for one in refresher.after().result(60).careers] == ["c"]
                if not careers:
                    shutil.rmtree(server.folder / "data")
                server.start()
                eventually(lambda: refresher.after().result(60).problem is None)
                assert [one.career for one in refresher.after().result(60).careers] == careers
        finally:
            refresher.stop()
