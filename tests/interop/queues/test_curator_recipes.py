"""Every recipe, Java at one end and ours at the other."""

from __future__ import annotations

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
RANKS = [3, 1, -2, 0, 1]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
with_and_without_lock = pytest.mark.parametrize("locks", [False, True], ids=["no-lock", "lock"])


def sharing(root: str, locks: bool) -> tuple[str, str | None]:
    """The path of the queue, and the lock path if there is to be one."""
    return f"{root}/q", f"{root}/locks" if locks else None


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
    producer = java.queue(kind.value, path)
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
        consumer = java.queue(kind.value, path, lock=lock_path or "", consume=True)
        got = consumer.await_items(len(RANKS))
        # Curator promises no order among equal due times.
        ranks = [RANKS[int(item)] for item in got]
        assert ranks == sorted(RANKS) if kind is QueueKind.DELAY else got == expected(kind)
        assert sorted(got) == sorted(expected(kind))
        eventually(lambda: producer.depth() == 0)
        consumer.close()


@pytest.mark.parametrize(
    ("kind", "gzip"),
    [(QueueKind.PLAIN, True), (QueueKind.PRIORITY, False), (QueueKind.DELAY, True)],
)
def test_several_items_in_one_znode_go_both_ways_also_in_gzip(
    java_peer, session, zookeeper_server, znode_root, kind, gzip
):
    java = java_peer.connect(zookeeper_server.address, gzip=gzip)
    several = [b"a", b"", b"c" * 10_000]
    consumer = java.queue(kind.value, f"{znode_root}/theirs", consume=True)
    with recipe(kind, session, f"{znode_root}/theirs", compress=gzip) as ours:
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
    java.close()


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
    failed: list[bytes] = []

    def fail(value: bytes) -> None:
        failed.append(value)
        raise RuntimeError("told to fail")

    with recipe(kind, session, path, lock_path=lock_path) as producer:
        put(producer, b"poison", 5)
    (former,) = session.children(path)
    # ours leaves it alone meanwhile; Java does not know of that
    options = {"error_mode": ErrorMode.REQUEUE, "retry": Retry(attempts=10, first_s=60)}
    with recipe(kind, session, path, lock_path=lock_path, consumer=fail, **options) as ours:
        eventually(lambda: bool(failed) and former not in session.children(path))
        ours.pause()
        put(ours, b"before", 1)
        put(ours, b"behind", 9)
        assert names.prefix_of(former) in map(names.prefix_of, session.children(path))
    consumer = java.queue(kind.value, path, lock=lock_path, consume=True)
    in_order = [b"before", b"poison"] if kind in RANKED else [b"poison", b"before"]
    assert consumer.await_items(3) == [*in_order, b"behind"]
    consumer.close()
    assert failed == [b"poison"]


def test_items_of_a_simple_queue_go_both_ways_in_order(java, session, znode_root):
    theirs = java.simple(znode_root)
    values = [b"", b"a", b"\x00\xff" * 500]
    with SimpleDistributedQueue(session, znode_root) as ours:
        ours.offer_many(values)
        assert theirs.first("peek") == b""
        assert [theirs.first("poll") for _ in range(4)] == [*values, None]
        for value in values:
            theirs.offer(value)
        assert ours.peek() == b""
        assert ours.element() == b""
        assert [ours.poll() for _ in range(4)] == [*values, None]


def test_who_waits_at_a_simple_queue_is_woken_by_the_other(java, session, znode_root):
    theirs = java.simple(znode_root)
    with SimpleDistributedQueue(session, znode_root) as ours:
        answer = java.peer.ask("take", theirs.handle)
        ours.offer(b"for you")
        assert answer.result(60) == [b"for you".hex()]
        theirs.offer(b"for us")
        assert ours.take(60) == b"for us"


def znodes(session: Session, path: str) -> dict[str, bytes]:
    """What each znode of a queue holds, by name."""
    return {name: session.get(join(path, name))[0] for name in session.children(path)}


@each_kind
def test_what_java_puts_has_our_names_and_our_bytes(java, session, znode_root, kind):
    theirs = java.queue(kind.value, f"{znode_root}/theirs")
    with recipe(kind, session, f"{znode_root}/ours") as ours:
        for value, rank in ((b"hello", -5), (b"", 7)):
            theirs.put(value, java_how(kind, rank))
            put(ours, value, rank)
    theirs.close()
    written = znodes(session, f"{znode_root}/theirs")
    assert written == znodes(session, f"{znode_root}/ours")
    assert names.kind_of(written) is kind


@each_kind
def test_the_note_behind_the_frame_survives_a_requeue_by_java(java, session, znode_root, kind):
    path, lock_path = sharing(znode_root, True)
    with recipe(kind, session, path) as ours:
        put(ours, b"", 1)
    (former,) = session.children(path)
    data = payload.encode([b"x", b"y"], Note(attempt=2, enqueued_ms=1234))
    session.set(join(path, former), data)
    queue = java.queue(kind.value, path, lock=lock_path, consume=True, held=True, fail=1)
    eventually(lambda: queue.events("held"))
    queue.do("step")
    eventually(lambda: len(queue.events("held")) == 2, message="Java is given it again")
    ((name, requeued),) = znodes(session, path).items()
    assert (name != former, requeued) == (True, data)
    kept = kind in (QueueKind.PLAIN, QueueKind.ID)
    assert names.prefix_of(name) == (names.prefix_of(former) if kept else "queue-"), (
        "Java loses priorities and due times"
    )
    queue.do("release")
    assert queue.await_items(2) == [b"x", b"y"]
    eventually(lambda: not session.children(path))
    queue.close()
