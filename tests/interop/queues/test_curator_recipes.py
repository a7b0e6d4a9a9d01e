"""Every recipe, Java at one end and ours at the other."""

from __future__ import annotations

from typing import Any

import pytest
from curator_ours import Seen, java_how, put, recipe

from leaderq import Session
from leaderq.queues import ErrorMode, Retry, SimpleDistributedQueue
from leaderq.queues.wire import names, payload
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.payload import Note
from leaderq.testing import eventually
from leaderq.zookeeper.paths import join

KINDS = [QueueKind.PLAIN, QueueKind.ID, QueueKind.PRIORITY, QueueKind.DELAY]
RANKED = [QueueKind.PRIORITY, QueueKind.DELAY]
RANKS = [3, 1, 2, 0, 1]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
with_and_without_lock = pytest.mark.parametrize("locks", [False, True], ids=["no-lock", "lock"])


def sharing(root: str, locks: bool) -> tuple[str, str | None]:
    """The path of the queue, and the lock path if there is to be one."""
    return f"{root}/q", f"{root}/locks" if locks else None


def for_java(lock_path: str | None, **more: object) -> dict[str, Any]:
    """Options of a queue of Java's."""
    return {**({"lock": lock_path} if lock_path else {}), **more}


def expected(kind: QueueKind) -> list[bytes]:
    """Items numbered as they are put with RANKS, in the order they have to come out in."""
    numbers = range(len(RANKS))
    return [
        b"%d" % number
        for number in (sorted(numbers, key=lambda n: RANKS[n]) if kind in RANKED else numbers)
    ]


@each_kind
@with_and_without_lock
def test_java_puts_and_we_consume_in_order(java, session, znode_root, kind, locks):
    path, lock_path = sharing(znode_root, locks)
    producer = java.queue(kind.value, path, **for_java(lock_path))
    for number, rank in enumerate(RANKS):
        producer.put(b"%d" % number, java_how(kind, rank))
    producer.close()
    seen = Seen()
    with recipe(kind, session, path, lock_path=lock_path, consumer=seen):
        assert seen.await_items(len(RANKS)) == expected(kind)
        eventually(lambda: not session.children(path))
    if lock_path:
        assert session.children(lock_path) == []


@each_kind
@with_and_without_lock
def test_we_put_and_java_consumes_in_order(java, session, znode_root, kind, locks):
    path, lock_path = sharing(znode_root, locks)
    with recipe(kind, session, path, lock_path=lock_path) as producer:
        for number, rank in enumerate(RANKS):
            put(producer, b"%d" % number, rank)
        consumer = java.queue(kind.value, path, **for_java(lock_path, consume=True))
        got = consumer.await_items(len(RANKS))
        # Curator promises no order among equal due times.
        ranks = [RANKS[int(item)] for item in got]
        assert (
            (ranks, sorted(got)) == (sorted(RANKS), sorted(expected(kind)))
            if kind is QueueKind.DELAY
            else got == expected(kind)
        )
        eventually(lambda: producer.depth() == 0)
        consumer.close()


@pytest.mark.parametrize(
    "kind", [QueueKind.PLAIN, QueueKind.PRIORITY, QueueKind.DELAY], ids=lambda kind: kind.value
)
def test_several_items_in_one_znode_go_both_ways(java, session, znode_root, kind):
    several = [b"a", b"", b"c" * 10_000]
    consumer = java.queue(kind.value, f"{znode_root}/theirs", consume=True)
    with recipe(kind, session, f"{znode_root}/theirs") as ours:
        put(ours, several, 1, is_multi=True)
        put(ours, [], 1, is_multi=True)
        assert consumer.await_items(3) == several
        eventually(lambda: ours.depth() == 0)
    consumer.close()
    producer = java.queue(kind.value, f"{znode_root}/ours")
    producer.put_multi(several, java_how(kind, 1))
    producer.put_multi([], java_how(kind, 1))
    producer.close()
    seen = Seen()
    with recipe(kind, session, f"{znode_root}/ours", consumer=seen) as ours:
        assert seen.await_items(3) == several
        eventually(lambda: ours.depth() == 0)


def test_gzip_goes_both_ways(java_peer, session, zookeeper_server, znode_root):
    zipping = java_peer.connect(zookeeper_server.address, gzip=True)
    text = b"again and " * 200
    consumer = zipping.queue("plain", f"{znode_root}/theirs", consume=True)
    with recipe(QueueKind.PLAIN, session, f"{znode_root}/theirs", compress=True) as ours:
        ours.put(text)
        assert consumer.await_items(1) == [text]
    consumer.close()
    producer = zipping.queue("plain", f"{znode_root}/ours")
    producer.put(text)
    producer.close()
    seen = Seen()
    with recipe(QueueKind.PLAIN, session, f"{znode_root}/ours", consumer=seen):
        assert seen.await_items(1) == [text]
    zipping.close()


def test_each_side_removes_by_id_what_the_other_has_put(java, session, znode_root):
    theirs = java.queue("id", znode_root, consume=False)
    with recipe(QueueKind.ID, session, znode_root) as ours:
        ours.put(b"1", "a/b|c")
        ours.put(b"2", "other")
        assert theirs.remove("a_b_c") == 1, "Curator wants the id as it stands in the name"
        theirs.put(b"3", "a/b|c")
        assert ours.remove("a/b|c") == 1
        assert ours.depth() == 1
    theirs.close()


@each_kind
def test_what_we_requeue_keeps_its_place_for_java(java, session, znode_root, kind):
    path, lock_path = sharing(znode_root, True)
    failing = Seen(failures=1)
    with recipe(kind, session, path, lock_path=lock_path) as producer:
        put(producer, b"poison", 5)
    (former,) = session.children(path)
    # ours leaves it alone meanwhile; Java does not know of that
    patient = Retry(attempts=10, first_s=60)
    with recipe(
        kind,
        session,
        path,
        lock_path=lock_path,
        consumer=failing,
        error_mode=ErrorMode.REQUEUE,
        retry=patient,
    ) as ours:
        eventually(lambda: failing.failed == [b"poison"] and former not in session.children(path))
        ours.pause()
        put(ours, b"before", 1)
        put(ours, b"behind", 9)
        assert any(
            names.prefix_of(name) == names.prefix_of(former) for name in session.children(path)
        )
    consumer = java.queue(kind.value, path, lock=lock_path, consume=True)
    in_order = (
        [b"before", b"poison", b"behind"] if kind in RANKED else [b"poison", b"before", b"behind"]
    )
    assert consumer.await_items(3) == in_order
    consumer.close()
    assert failing.values == []


class TestSimple:
    """SimpleDistributedQueue."""

    def test_items_go_both_ways_in_order(self, java, session, znode_root):
        theirs = java.simple(znode_root)
        ours = SimpleDistributedQueue(session, znode_root)
        values = [b"", b"a", b"\x00\xff" * 500]
        for value in values:
            ours.offer(value)
        assert theirs.peek() == b""
        assert [theirs.poll() for _ in range(4)] == [*values, None]
        for value in values:
            theirs.offer(value)
        assert ours.peek() == b""
        assert ours.element() == b""
        assert [ours.poll() for _ in range(4)] == [*values, None]
        assert ours.close()

    def test_who_waits_is_woken_by_the_other(self, java, session, znode_root):
        theirs = java.simple(znode_root)
        ours = SimpleDistributedQueue(session, znode_root)
        taking = theirs.taking()
        ours.offer(b"for you")
        assert taking.result(60) == [b"for you".hex()]
        answer = java.peer.ask("poll", theirs.handle, 60_000)
        ours.offer(b"and again")
        assert answer.result(60) == [b"and again".hex()]
        theirs.offer(b"for us")
        assert ours.take(60) == b"for us"
        assert ours.close()


PAST_MS = 1_700_000_000_000
FRAMED = [
    (QueueKind.PLAIN, ""),
    (QueueKind.ID, "a/b|c"),
    (QueueKind.PRIORITY, -5),
    (QueueKind.DELAY, PAST_MS),
]
HOW = {QueueKind.ID: "id", QueueKind.PRIORITY: "priority", QueueKind.DELAY: "due_ms"}


def lay(session: Session, path: str, kind: QueueKind, how: Any, data: bytes) -> str:
    """One znode, named by our wire; gives its name."""
    session.ensure_path(path)
    prefix = names.prefix_for(kind, **({HOW[kind]: how} if kind in HOW else {}))
    return session.create(join(path, prefix), data, sequential=True).rpartition("/")[2]


def items(session: Session, path: str) -> dict[str, payload.Payload]:
    """All znodes of a queue, by name."""
    return {
        name: payload.decode(session.get(join(path, name))[0]) for name in session.children(path)
    }


@pytest.mark.parametrize(("kind", "how"), FRAMED)
def test_what_java_puts_has_our_name_and_our_bytes(java, session, znode_root, kind, how):
    queue = java.queue(kind.value, znode_root)
    queue.put(b"hello", how)
    queue.put(b"", how)
    queue.close()
    prefix = names.prefix_for(kind, **({HOW[kind]: how} if kind in HOW else {}))
    assert sorted(session.children(znode_root)) == [f"{prefix}0000000000", f"{prefix}0000000001"]
    written = session.get(join(znode_root, f"{prefix}0000000000"))[0]
    assert written == payload.encode([b"hello"])
    assert payload.decode(session.get(join(znode_root, f"{prefix}0000000001"))[0]).items == [b""]
    assert names.kind_of(session.children(znode_root)) is kind


@pytest.mark.parametrize(("kind", "how"), FRAMED)
def test_the_note_behind_the_frame_survives_a_requeue_by_java(java, session, znode_root, kind, how):
    path, note = f"{znode_root}/q", Note(attempt=2, enqueued_ms=1234)
    queue = java.queue(kind.value, path, lock=f"{znode_root}/lock", consume=True)
    queue.hold()
    former = lay(session, path, kind, how, payload.encode([b"x", b"y"], note))
    eventually(lambda: queue.events("held"))
    queue.fail(1)
    queue.step()
    eventually(
        lambda: len(queue.events("held")) == 2,
        message="Java has requeued it, and is given it again",
    )
    ((name, found),) = items(session, path).items()
    assert name != former
    assert list(found.items) == [b"x", b"y"]
    assert found.note == note
    kept = kind in (QueueKind.PLAIN, QueueKind.ID)
    assert names.prefix_of(name) == (names.prefix_of(former) if kept else "queue-"), (
        "Java loses priorities and due times"
    )
    queue.release()
    assert queue.await_items(2) == [b"x", b"y"]
    eventually(lambda: not session.children(path))
    queue.close()
