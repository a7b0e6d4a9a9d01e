"""What a queue leaves behind, and what happens after as many writes as a version can count."""

from __future__ import annotations

import pytest
from consumption import numbered

from leaderq.errors import RequestRefused
from leaderq.queues import DistributedQueue, SimpleDistributedQueue
from leaderq.testing import eventually
from leaderq.zookeeper import Session
from leaderq.zookeeper.writing import groups, writer


@pytest.mark.parametrize("lock_path", [None, "/locks"])
def test_a_guard_is_made_again_before_its_version_runs_over(session, monkeypatch, lock_path):
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


@pytest.mark.parametrize("kind", [DistributedQueue, SimpleDistributedQueue])
def test_what_killed_users_of_every_kind_have_left_is_swept_when_a_queue_is_opened(
    session, monkeypatch, kind
):
    swept: list[str] = []
    monkeypatch.setattr(writer, "sweep", lambda _session, parent, _now_ms: swept.append(parent))
    with kind(session, "/q") as queue:
        queue.offer(b"item") if kind is SimpleDistributedQueue else queue.put(b"item")
        assert queue.take(60) is not None
    assert swept == ["/q-meta/tallies"] * 2


def test_sweeping_takes_away_old_guards_only(session):
    session.ensure_path("/meta")
    for name in ("old", "older"):
        session.create(f"/meta/{name}")
    first = session.get("/meta/older")[1].mtime_ms
    eventually(
        lambda: session.set("/meta/old", b"").mtime_ms > first + 20 and session.create("/meta/new")
    )
    newest = session.get("/meta/new")[1].mtime_ms
    assert writer.sweep(session, "/meta", newest, old_s=(newest - first - 10) / 1000) == 1
    assert sorted(session.children("/meta")) == ["new", "old"]
    assert writer.sweep(session, "/meta", newest) == 0
    assert writer.sweep(session, "/nowhere", newest) == 0


def everything(session: Session, path: str = "") -> set[str]:
    children = session.children(path or "/")
    return {f"{path}/{name}" for name in children}.union(
        *(everything(session, f"{path}/{name}") for name in children)
    )


def test_a_queue_in_use_is_deleted_by_force_only(session, opened):
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
