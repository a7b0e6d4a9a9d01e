"""Payloads in a store beside ZooKeeper, and what is left over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from leaderq.dyno import (
    BodyStore,
    Duplicate,
    DynoQueue,
    FileBodies,
    Message,
    MissingBody,
    OnConflict,
    Worker,
)
from leaderq.errors import TooLarge
from leaderq.queues import Retry
from leaderq.testing import eventually

D = "/d"
LARGE = b"x" * 2_000_000


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def queue(session, tmp_path):
    with DynoQueue(
        session, D, body_store=FileBodies(tmp_path), retry=Retry(attempts=2, first_s=0)
    ) as made:
        yield made


def test_a_large_payload_goes_through_the_store_and_is_gone_with_its_message(queue, tmp_path):
    ends: list[Callable[[], object]] = [
        lambda: queue.ack(queue.pop(1, 30)),
        lambda: queue.pop(1, 30)[0].ack(),
        lambda: queue.remove("a"),
        lambda: queue.clear(),
        lambda: (queue.pop(1, 30)[0].kill(), queue.dead_letters.requeue(), queue.remove("a")),
        lambda: (queue.pop(1, 30)[0].kill(), queue.dead_letters.drop()),
        lambda: (
            queue.push_unique(Message(id="a", payload=b"small"), OnConflict.REPLACE),
            queue.clear(),
        ),
    ]
    for end in ends:
        queue.push(Message(id="a", payload=LARGE))
        assert len(files(tmp_path)) == 1
        (peeked,) = queue.peek(1) or eventually(lambda: queue.peek(1))
        assert peeked.payload == LARGE
        end()
        assert files(tmp_path) == []
    queue.push(Message(payload=b"small"))
    assert files(tmp_path) == []
    assert queue.pop(1, 30)[0].payload == b"small"


def test_a_refused_push_leaves_no_body(queue, tmp_path):
    queue.push(Message(id="a", payload=b"small"))
    with pytest.raises(Duplicate):
        queue.push(Message(id="a", payload=LARGE))
    assert not queue.ensure(Message(id="a", payload=LARGE))
    with pytest.raises(TooLarge, match="message without an id"):
        queue.push(Message(payload=LARGE, headers={"h": "x" * 2_000_000}))
    assert files(tmp_path) == []


def test_a_message_whose_body_is_lost_fails_and_is_dead_at_last(queue, session, tmp_path):
    queue.push([Message(payload=LARGE), Message(payload=b"next")])
    for path in files(tmp_path):
        path.unlink()
    seen: list[bytes] = []
    with Worker(queue, lambda one: seen.append(one.payload)):
        eventually(
            lambda: (
                queue.shard_sizes()["0"] == {"messages": 0, "resting": 0, "leased": 0, "dead": 1}
            )
        )
    assert seen == [b"next"]
    (letter,) = queue.dead_letters.browse()
    assert "MissingBody" in letter.error


def test_bodies_without_a_message_are_swept_when_they_are_old(queue, tmp_path):
    store = FileBodies(tmp_path)
    young, old = store.put(b"young"), store.put(b"old")
    queue.push([Message(id="waits", payload=LARGE), Message(id="dies", payload=LARGE, priority=0)])
    queue.pop_id("dies").kill()
    hours_ago = time.time() - 7200
    for path in files(tmp_path):
        if path.name != young:
            os.utime(path, (hours_ago, hours_ago))
    assert queue.sweep_bodies(older_s=3600) == 1
    with pytest.raises(MissingBody):
        store.get(old)
    assert store.get(young) == b"young"
    assert len(files(tmp_path)) == 3


def test_a_store_of_files_touches_nothing_outside_its_folder(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    store = FileBodies(tmp_path / "bodies")
    assert isinstance(store, BodyStore)
    for hostile in ("../secret", "../../etc/passwd", "", "x" * 32, "\u0660" * 32):
        for touch in (store.get, store.delete):
            with pytest.raises(MissingBody):
                touch(hostile)
    assert (tmp_path / "secret").exists()
    assert list(store.ages()) == []
