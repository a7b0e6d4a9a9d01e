"""What an operator sees of a queue on real znodes, and does with it. Lost requests and answers:
``tests/simulation/test_writing.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
from consumption import fill

from leaderq.errors import NoNode
from leaderq.queues.admin import Purged, QueueAdmin, queues_below
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.payload import Note, compressed, encode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Session

PLACES = QueuePaths("/in/q", "/in/locks")
PRIORITY = QueueKind.PRIORITY


@pytest.fixture
def admin(session) -> QueueAdmin:
    """Of a queue that stands, and its locks with it."""
    session.ensure_path(PLACES.path)
    session.ensure_path(PLACES.lock_path)
    return QueueAdmin(session, PLACES)


def put(
    session: Session, *items: bytes, kind: QueueKind = QueueKind.PLAIN, **how: Any
) -> list[str]:
    return fill(session, items, kind, PLACES.path, **how)


def test_browsing_shows_items_in_their_order_with_what_is_known_and_takes_nothing(session, admin):
    for priority in (5, -1, 0):
        put(session, b"p%d" % priority, kind=PRIORITY, priority=priority)
    (odd,) = put(session, b"", kind=PRIORITY, priority=7)
    session.set(PLACES.item(odd), b"odd")
    (noted,) = put(session, b"", kind=PRIORITY, priority=8)
    session.set(
        PLACES.item(noted), compressed(encode([b"x", b"y"], Note(attempt=2, enqueued_ms=5)))
    )
    session.create(PLACES.lock(odd), ephemeral=True)
    found = list(admin.browse())
    assert [one.key(QueueKind.PRIORITY) for one in found] == [-1, 0, 5, 7, 8]
    assert [one.is_locked for one in found] == [False, False, False, True, False]
    assert found[3].items is None
    assert "shorter than the shortest frame" in (found[3].problem or "")
    assert (found[4].items, found[4].attempt, found[4].enqueued_ms) == ([b"x", b"y"], 2, 5)
    assert found[0].ctime_ms > 1_600_000_000_000
    assert admin.depth() == 5
    assert [one.name for one in admin.browse(limit=2)] == [one.name for one in found[:2]]
    without_locks = QueueAdmin(session, QueuePaths(PLACES.path))
    assert {one.is_locked for one in without_locks.browse()} == {None}


def test_a_purge_deletes_what_is_free_and_leaves_foreign_and_locked_ones(session, admin):
    names = put(session, *[b"%d" % n for n in range(700)])
    session.create(f"{PLACES.path}/stray")
    for name in names[::100]:
        session.create(PLACES.lock(name), ephemeral=True)
    dealt: list[int] = []
    assert admin.purge(on_progress=dealt.append) == Purged(deleted=693, held=7)
    assert sum(dealt) == 700
    assert sorted(session.children(PLACES.path)) == [*names[::100], "stray"]
    assert sorted(session.children(PLACES.lock_path or "")) == names[::100]
    assert admin.purge(held_too=True) == Purged(deleted=7)
    assert admin.purge() == Purged(deleted=0)
    assert session.children(PLACES.path) == ["stray"]
    assert session.exists(PLACES.meta) is None


def test_a_purge_by_age_goes_by_when_an_item_was_first_put(session, admin):
    old, corrupt, new = put(session, b"old", b"corrupt", b"new")
    session.set(PLACES.item(old), encode([b"old"], Note(enqueued_ms=5)))
    session.set(PLACES.item(corrupt), b"odd")
    assert admin.purge(older_s=3600) == Purged(deleted=1)
    assert sorted(session.children(PLACES.path)) == [corrupt, new]
    assert admin.purge(older_s=0) == Purged(deleted=2)


def test_queues_are_found_below_a_path_even_when_they_are_empty_and_have_a_dead_letter(
    session, admin
):
    put(session, b"a")
    session.ensure_path("/in/simple")
    session.create("/in/simple/qn-", b"b", sequential=True)
    session.ensure_path("/in/nothing/queue")
    session.create(PLACES.lock("queue-0000000000"), ephemeral=True)
    session.ensure_path("/in/reaped-dead")
    session.create("/in/reaped-dead/queue-", encode([b"a"]), sequential=True)
    assert list(queues_below(session, "/in")) == ["/in/q", "/in/reaped", "/in/simple"]
    with pytest.raises(NoNode):
        list(queues_below(session, "/in/absent"))
    seen = QueueAdmin(session, QueuePaths("/in/reaped")).overview()
    assert (seen.exists, seen.depth, seen.dead) == (False, 0, 1)
