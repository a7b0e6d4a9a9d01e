"""What Java Curator writes, we read; what we write, it consumes: byte for byte, on the znodes
themselves.
"""

from __future__ import annotations

from typing import Any

import pytest
from java_peer import JavaClient

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
