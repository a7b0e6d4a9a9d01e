"""What a queue leaves behind, and what happens after as many writes as a version can count."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from producing import at_every_point, numbered

from leaderq.errors import RequestRefused
from leaderq.queues import DistributedQueue, SimpleDistributedQueue
from leaderq.queues.consuming.engine import Engine
from leaderq.testing import FaultProxy, eventually
from leaderq.writing import SequencedWriter, groups, writer
from leaderq.zookeeper import Create, Session

Open = Callable[..., Session]


@pytest.mark.parametrize("lock_path", [None, "/locks"])
def test_a_guard_is_made_again_before_its_version_runs_over(
    session: Session, monkeypatch: pytest.MonkeyPatch, lock_path: str | None
) -> None:
    monkeypatch.setattr(groups, "RENEW_AT", 20)
    seen: list[bytes] = []
    with DistributedQueue(session, "/q", consumer=seen.append, lock_path=lock_path) as queue:
        members = session.children("/q-meta/members")
        for item in numbered(150):
            queue.put(item)
        eventually(lambda: len(seen) == 150 and queue.depth() == 0)
        assert seen == numbered(150)
        guards = [f"/q-meta/tallies/{name}" for name in session.children("/q-meta/tallies")]
        guards += [f"/q-meta/members/{name}" for name in members if lock_path is not None]
        versions = [session.get(path)[1].version for path in guards]
        assert len(versions) == 2
        assert max(versions) <= 20
        assert session.children("/q-meta/members") == members


@pytest.mark.parametrize("ephemeral", [False, True])
def test_renewing_a_guard_loses_and_doubles_nothing_whichever_answer_is_lost(
    session: Session,
    proxy: FaultProxy,
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
    ephemeral: bool,
) -> None:
    proxied = opened(proxy.address)
    monkeypatch.setattr(groups, "RENEW_AT", 3)
    session.ensure_path("/q")
    put = 0

    def scenario(_point: int) -> None:
        nonlocal put
        for _ in range(7):
            assert (
                guard.submit([Create("/q/queue-", b"%d" % put, sequential=True)]).exception(60)
                is None
            )
            put += 1

    guard = SequencedWriter(proxied, "/meta/guard", ephemeral=ephemeral)
    guard.open()
    assert at_every_point(proxy, scenario, proxied) > 7
    assert guard.close(60)
    names = sorted(session.children("/q"))
    assert [session.get(f"/q/{name}")[0] for name in names] == numbered(put)


@pytest.mark.parametrize("kind", [DistributedQueue, SimpleDistributedQueue])
def test_what_killed_users_of_every_kind_have_left_is_swept_when_a_queue_is_opened(
    session: Session, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    swept: list[str] = []
    monkeypatch.setattr(writer, "sweep", lambda _session, parent, _now_ms: swept.append(parent))
    with kind(session, "/q") as queue:
        queue.offer(b"item") if kind is SimpleDistributedQueue else queue.put(b"item")
        assert queue.take(60) is not None
    assert swept == ["/q-meta/tallies"] * 2


def test_a_consumer_that_puts_nothing_writes_nothing_for_puts(session: Session) -> None:
    seen: list[bytes] = []
    with DistributedQueue(session, "/q", lock_path="/locks", consumer=seen.append) as queue:
        assert session.exists("/q-meta/tallies") is None
        assert isinstance(queue.put(b"item"), str)
        assert len(session.children("/q-meta/tallies")) == 1
        eventually(lambda: seen == [b"item"])


def everything(session: Session, path: str = "") -> set[str]:
    children = session.children(path or "/")
    return {f"{path}/{name}" for name in children}.union(
        *(everything(session, f"{path}/{name}") for name in children)
    )


def test_deleting_hundreds_of_queues_leaves_nothing_behind(session: Session) -> None:
    before = everything(session)
    for number in range(100):
        locks = f"/locks-{number}" if number % 2 else None
        queue = DistributedQueue(session, f"/reply-{number}", lock_path=locks)
        with queue:
            queue.put(b"item")
            queue.take(60).ack()  # type: ignore[union-attr]
        queue.delete()
    assert everything(session) == before


def test_a_queue_in_use_is_deleted_by_force_only(session: Session, opened: Open) -> None:
    queue = DistributedQueue(session, "/q", lock_path="/locks")
    with queue:
        queue.put_many(numbered(3))
        item = queue.take(60)
        with DistributedQueue(
            opened(), "/q", lock_path="/locks", consumer=lambda _value: None
        ) as other:
            eventually(lambda: other.depth() == 1)
            with pytest.raises(RequestRefused, match=r"1 items.*1 consumers|2 consumers"):
                other._admin.delete()
        assert item is not None
    with pytest.raises(RequestRefused, match="1 items"):
        queue.delete()
    assert queue.delete(force=True) > 3
    assert not {path for path in everything(session) if "q" in path or "locks" in path}
    assert queue.delete() == 0


def test_a_consumer_that_leaves_makes_nobody_list_the_queue(
    session: Session, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DistributedQueue(session, "/q", lock_path="/locks") as producer:
        producer.put_many(numbered(500))
        consumer = DistributedQueue(opened(), "/q", lock_path="/locks")
        consumer.start()
        consumer.pause()
        consumer.take(0.05)
        eventually(lambda: len(producer._death_watcher._members) == 1)
        listed: list[str] = []
        children = Session.children
        monkeypatch.setattr(
            Session,
            "children",
            lambda self, path, *rest, **more: (
                listed.append(path) or children(self, path, *rest, **more)
            ),
        )
        consumer.close()
        eventually(lambda: producer._death_watcher._members == set())
        # seen when the look before is over
        with DistributedQueue(opened(), "/q", lock_path="/locks") as another:
            another.pause()
            another.take(0.05)
            eventually(lambda: len(producer._death_watcher._members) == 1)
        assert "/q" not in listed
        assert producer._death_watcher.wake_ups == 0


@pytest.mark.parametrize("lock_path", [None, "/locks"])
def test_a_session_keeps_nothing_of_consumers_that_were_closed(
    session: Session, lock_path: str | None
) -> None:
    def engines() -> int:
        gc.collect()
        return sum(isinstance(one, Engine) for one in gc.get_objects())

    before = engines()
    for _ in range(5):
        with DistributedQueue(session, "/q", consumer=print, lock_path=lock_path) as queue:
            listing = queue._consumption.engine._listing
            eventually(lambda listing=listing: not listing.is_stale)
    del queue, listing
    eventually(lambda: engines() <= before)
