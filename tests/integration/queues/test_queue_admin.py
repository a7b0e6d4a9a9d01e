"""What an operator sees of a queue on real znodes, and does with it. Lost requests and answers:
``tests/simulation/test_writing.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leaderq.errors import NoNode
from leaderq.queues.admin import Moved, Purged, QueueAdmin, QueueDrain, queues_below
from leaderq.queues.wire.names import QueueKind, prefix_for
from leaderq.queues.wire.payload import Note, compressed, encode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Session, connect


@pytest.fixture
def places(znode_root) -> QueuePaths:
    """A queue and its locks, by their whole paths."""
    return QueuePaths(f"{znode_root}/q", f"{znode_root}/locks")


@pytest.fixture
def session(zookeeper_server, places) -> Iterator[Session]:
    """A session without a chroot, as an operator's, with the znodes of ``places`` made."""
    with connect(zookeeper_server.address) as opened:
        opened.ensure_path(places.path)
        opened.ensure_path(places.lock_path)
        yield opened


Put = Callable[..., list[str]]


@pytest.fixture
def put(session, places) -> Put:
    """Create items, as any recipe does; gives their names."""

    def make(
        *items: bytes, prefix: str = "queue-", path: str = places.path, framed: bool = True
    ) -> list[str]:
        session.ensure_path(path)
        made = [
            session.create_async(
                f"{path}/{prefix}", encode([one]) if framed else one, sequential=True
            )
            for one in items
        ]
        return [one.result(60).rpartition("/")[2] for one in made]

    return make


def test_browsing_shows_items_in_their_order_with_what_is_known_and_takes_nothing(
    session, places, put
):
    for priority in (5, -1, 0):
        put(b"p%d" % priority, prefix=prefix_for(QueueKind.PRIORITY, priority=priority))
    (odd,) = put(b"\0", prefix=prefix_for(QueueKind.PRIORITY, priority=7), framed=False)
    session.set(places.item(odd), b"odd")
    (noted,) = put(b"", prefix=prefix_for(QueueKind.PRIORITY, priority=8))
    session.set(
        places.item(noted), compressed(encode([b"x", b"y"], Note(attempt=2, enqueued_ms=5)))
    )
    session.create(places.lock(odd), ephemeral=True)
    found = list(QueueAdmin(session, places).browse())
    assert [one.key(QueueKind.PRIORITY) for one in found] == [-1, 0, 5, 7, 8]
    assert [one.is_locked for one in found] == [False, False, False, True, False]
    assert found[3].items is None
    assert "shorter than the shortest frame" in (found[3].problem or "")
    assert (list(found[4].items or ()), found[4].attempt, found[4].enqueued_ms) == (
        [b"x", b"y"],
        2,
        5,
    )
    assert found[0].ctime_ms > 1_600_000_000_000
    assert QueueAdmin(session, places).depth() == 5
    assert [one.name for one in QueueAdmin(session, places).browse(limit=2)] == [
        one.name for one in found[:2]
    ]
    assert {one.is_locked for one in QueueAdmin(session, QueuePaths(places.path)).browse()} == {
        None
    }


def test_a_purge_deletes_what_is_free_and_leaves_foreign_and_locked_ones(session, places, put):
    names = put(*[b"%d" % n for n in range(700)])
    session.create(f"{places.path}/stray")
    for name in names[::100]:
        session.create(places.lock(name), ephemeral=True)
    dealt: list[int] = []
    keeper = QueueAdmin(session, places)
    assert keeper.purge(on_progress=dealt.append) == Purged(deleted=693, held=7)
    assert sum(dealt) == 700
    assert sorted(session.children(places.path)) == [*names[::100], "stray"]
    assert sorted(session.children(places.lock_path or "")) == names[::100]
    assert keeper.purge(held_too=True) == Purged(deleted=7)
    assert keeper.purge() == Purged(deleted=0)
    assert session.children(places.path) == ["stray"]
    assert session.exists(places.meta) is None


def test_a_purge_by_age_goes_by_when_an_item_was_first_put(session, places, put):
    old, corrupt, new = put(b"old", b"corrupt", b"new")
    session.set(places.item(old), encode([b"old"], Note(enqueued_ms=5)))
    session.set(places.item(corrupt), b"odd")
    keeper = QueueAdmin(session, places)
    assert keeper.purge(older_s=3600) == Purged(deleted=1)
    assert sorted(session.children(places.path)) == [corrupt, new]
    assert keeper.purge(older_s=0) == Purged(deleted=2)


def bury(session: Session, places: QueuePaths, name: str, items: list[bytes], **said: Any) -> str:
    session.ensure_path(places.dead)
    note = Note(
        **{
            "reason": "attempts",
            "error": "KeyError: 'iban'",
            "origin": name,
            "attempt": 3,
            "died_ms": 9,
            **said,
        }
    )
    made = session.create(f"{places.dead}/{name[:-10]}", encode(items, note), sequential=True)
    return made.rpartition("/")[2]


def test_letters_are_shown_and_go_back_once_as_they_were(session, places):
    urgent = prefix_for(QueueKind.PRIORITY, priority=-9)
    bury(session, places, f"{urgent}0000000041", [b"x", b"y"], enqueued_ms=7)
    bury(session, places, "queue-0000000042", [b"\0garbage"], reason="corrupt", raw=True)
    session.create(f"{places.dead}/stray")
    keeper = QueueAdmin(session, places)
    first, second = keeper.dead_letters.browse()
    assert (first.note.reason, first.note.error, first.note.origin) == (
        "attempts",
        "KeyError: 'iban'",
        f"{urgent}0000000041",
    )
    assert (first.note.attempt, first.died_ms, first.says("IBAN"), second.says("corrupt")) == (
        3,
        9,
        True,
        True,
    )
    assert keeper.dead_letters.requeue([first, second]) == Moved(2)
    assert keeper.dead_letters.requeue([first, second]) == Moved(0, gone=2)
    assert keeper.dead_letters.names() == []
    back = {one.name: one for one in keeper.browse()}
    assert set(back) == {f"{urgent}0000000000", "queue-0000000001"}
    assert back[f"{urgent}0000000000"].data == encode([b"x", b"y"], Note(enqueued_ms=7))
    assert back["queue-0000000001"].data == b"\0garbage"


def test_queues_are_found_below_a_path_even_when_they_are_empty_and_have_a_dead_letter(
    session, places, put, znode_root
):
    put(b"a")
    put(b"b", prefix="qn-", path=f"{znode_root}/simple", framed=False)
    session.ensure_path(f"{znode_root}/nothing/queue")
    session.create(places.lock("queue-0000000000"), ephemeral=True)
    bury(session, QueuePaths(f"{znode_root}/reaped"), "queue-0000000000", [b"a"])
    assert list(queues_below(session, znode_root)) == [
        f"{znode_root}/{name}" for name in ("q", "reaped", "simple")
    ]
    with pytest.raises(NoNode):
        list(queues_below(session, f"{znode_root}/absent"))
    seen = QueueAdmin(session, QueuePaths(f"{znode_root}/reaped")).overview()
    assert (seen.exists, seen.depth, seen.dead) == (False, 0, 1)


def drained(draining: QueueDrain, limit: int | None = None) -> list[bytes]:
    out: list[bytes] = []
    for batch in draining.batches(limit):
        for one in batch:
            out += one.items or ()
            draining.keep(one)
    return out


@pytest.mark.parametrize("data", [None, b"foreign"])
def test_a_drain_of_what_is_no_queue_does_not_make_one_of_it(session, znode_root, data):
    path = f"{znode_root}/beside/none"
    session.ensure_path(f"{znode_root}/beside")
    if data is not None:
        session.create(path, data)
    with QueueAdmin(session, QueuePaths(path)).drain() as draining:
        assert drained(draining) == []
        assert list(queues_below(session, f"{znode_root}/beside")) == [path]
    assert session.children(f"{znode_root}/beside") == ([] if data is None else ["none"])


def test_what_a_drain_has_not_kept_goes_back_to_its_place_with_its_data(session, places, put):
    wanted = [b"%04d" % n for n in range(40)]
    put(*wanted)
    before = [(one.name, one.data) for one in QueueAdmin(session, places).browse()]
    with pytest.raises(ZeroDivisionError), QueueAdmin(session, places).drain() as draining:
        batch = next(draining.batches())
        assert len(batch) == len(session.children(f"{places.meta}/drained")) == 16
        draining.keep(batch[0])
        draining.keep(batch[2])
        raise ZeroDivisionError
    assert [(one.name, one.data) for one in QueueAdmin(session, places).browse()] == [
        before[1],
        *before[3:],
    ]
    assert session.exists(places.meta) is None
    with QueueAdmin(session, places).drain() as draining:
        assert drained(draining, limit=3) == [wanted[1], *wanted[3:5]]
        assert drained(draining) == wanted[5:]
