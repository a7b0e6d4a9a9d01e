"""What Java Curator writes, we read; what we write, it consumes: byte for byte, on the znodes
themselves.
"""

from __future__ import annotations

from typing import Any

import pytest
from java_peer import JavaClient, JavaPeer

from leaderq import Session
from leaderq.queues.wire import names, payload
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.payload import Note
from leaderq.testing import eventually
from leaderq.zookeeper.paths import join

PAST_MS = 1_700_000_000_000
FRAMED = [
    (QueueKind.PLAIN, ""),
    (QueueKind.ID, "a/b|c"),
    (QueueKind.PRIORITY, -5),
    (QueueKind.DELAY, PAST_MS),
]
HOW = {QueueKind.ID: "id", QueueKind.PRIORITY: "priority", QueueKind.DELAY: "due_ms"}


def put(session: Session, path: str, kind: QueueKind, how: Any, data: bytes) -> str:
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
def test_what_java_puts_has_our_name_and_our_bytes(
    java: JavaClient, session: Session, znode_root: str, kind: QueueKind, how: Any
) -> None:
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


@pytest.mark.parametrize("priority", [0, 7, -1, names.MIN_PRIORITY, names.MAX_PRIORITY])
def test_every_priority_is_named_as_java_names_it(
    java: JavaClient, session: Session, znode_root: str, priority: int
) -> None:
    queue = java.queue("priority", znode_root)
    queue.put(b"x", priority)
    queue.close()
    (name,) = session.children(znode_root)
    assert names.prefix_of(name) == names.prefix_for(QueueKind.PRIORITY, priority=priority)
    assert names.priority_of(name) == priority


@pytest.mark.parametrize("kind", [QueueKind.PLAIN, QueueKind.PRIORITY, QueueKind.DELAY])
def test_a_znode_of_several_items_is_read_from_java_and_by_java(
    java: JavaClient, session: Session, znode_root: str, kind: QueueKind
) -> None:
    how = {QueueKind.PRIORITY: 3, QueueKind.DELAY: PAST_MS}.get(kind, "")
    several = [b"a", b"", b"b" * 1000]
    queue = java.queue(kind.value, znode_root)
    queue.put_multi(several, how)
    queue.put_multi([], how)
    queue.close()
    assert [list(one.items) for _, one in sorted(items(session, znode_root).items())] == [
        several,
        [],
    ]
    put(session, znode_root, kind, how, payload.encode([b"c", b"d"]))
    queue = java.queue(kind.value, znode_root, consume=True)
    assert queue.await_items(5) == [*several, b"c", b"d"]
    eventually(
        lambda: not session.children(znode_root), message="the znode without items is consumed too"
    )
    queue.close()


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize(("kind", "how"), FRAMED)
def test_java_consumes_what_our_wire_writes_and_leaves_nothing(
    java: JavaClient, session: Session, znode_root: str, kind: QueueKind, how: Any, lock: bool
) -> None:
    path, lock_path = f"{znode_root}/q", f"{znode_root}/lock"
    put(session, path, kind, how, payload.encode([b"one"], Note(attempt=3)))
    put(session, path, kind, how, payload.encode([b""]))
    queue = java.queue(kind.value, path, consume=True, **({"lock": lock_path} if lock else {}))
    assert sorted(queue.await_items(2)) == [b"", b"one"]
    eventually(lambda: not session.children(path))
    if lock:
        eventually(lambda: not session.children(lock_path))
    queue.close()


@pytest.mark.parametrize(("kind", "how"), FRAMED)
def test_the_note_behind_the_frame_survives_a_requeue_by_java(
    java: JavaClient, session: Session, znode_root: str, kind: QueueKind, how: Any
) -> None:
    path, note = f"{znode_root}/q", Note(attempt=2, enqueued_ms=1234)
    queue = java.queue(kind.value, path, lock=f"{znode_root}/lock", consume=True)
    queue.hold()
    former = put(session, path, kind, how, payload.encode([b"x", b"y"], note))
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


def test_gzip_is_read_from_java_and_by_java(
    java_peer: JavaPeer, session: Session, zookeeper_server: Any, znode_root: str
) -> None:
    zipping = java_peer.connect(zookeeper_server.address, gzip=True)
    queue = zipping.queue("plain", znode_root)
    queue.put(b"long " * 100)
    queue.close()
    (name,) = session.children(znode_root)
    raw = session.get(join(znode_root, name))[0]
    assert raw.startswith(b"\x1f\x8b")
    assert payload.decode(raw).items == [b"long " * 100]
    put(session, znode_root, QueueKind.PLAIN, "", payload.encode([b"ours"], compress=True))
    consuming = zipping.queue("plain", znode_root, consume=True)
    assert consuming.await_items(2) == [b"long " * 100, b"ours"]
    consuming.close()
    zipping.close()
