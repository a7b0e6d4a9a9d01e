"""Payloads in a store beside ZooKeeper, filters by fields, and what is left over."""

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
    Fields,
    FileBodies,
    Message,
    MissingBody,
    OnConflict,
    Worker,
)
from leaderq.queues import RetryPolicy
from leaderq.testing import eventually
from leaderq.zookeeper import Session

D = "/d"
LARGE = b"x" * 2_000_000


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.fixture
def queue(session: Session, tmp_path: Path):
    with DynoQueue(
        session, D, body_store=FileBodies(tmp_path), retry=RetryPolicy(attempts=2, backoff_s=0)
    ) as made:
        yield made


def test_a_large_payload_goes_through_the_store_and_is_gone_with_its_message(
    queue: DynoQueue, tmp_path: Path
) -> None:
    ends: list[Callable[[], object]] = [
        lambda: queue.ack(queue.pop(1, 30)),
        lambda: queue.pop(1, 30)[0].ack(),
        lambda: queue.remove("a"),
        lambda: queue.clear(),
        lambda: (queue.pop(1, 30)[0].kill(), queue.dead_letters.redrive(), queue.remove("a")),
        lambda: (queue.pop(1, 30)[0].kill(), queue.dead_letters.purge()),
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


def test_a_delivery_reads_its_payload_from_the_store(queue: DynoQueue) -> None:
    queue.push(Message(payload=LARGE))
    (one,) = queue.pop(1, 30)
    assert one.payload == LARGE
    one.nack("again")
    (one,) = queue.pop(1, 30)
    assert one.payload == LARGE


def test_a_refused_push_leaves_no_body(queue: DynoQueue, tmp_path: Path) -> None:
    queue.push(Message(id="a", payload=b"small"))
    with pytest.raises(Duplicate):
        queue.push(Message(id="a", payload=LARGE))
    assert not queue.ensure(Message(id="a", payload=LARGE))
    assert files(tmp_path) == []


def test_a_message_whose_body_is_lost_fails_and_is_dead_at_last(
    queue: DynoQueue, session: Session, tmp_path: Path
) -> None:
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


def test_bodies_without_a_message_are_swept_when_they_are_old(
    queue: DynoQueue, tmp_path: Path
) -> None:
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


def test_a_store_of_files_touches_nothing_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    store = FileBodies(tmp_path / "bodies")
    assert isinstance(store, BodyStore)
    for hostile in ("../secret", "../../etc/passwd", "", "x" * 32, "\u0660" * 32):
        for touch in (store.get, store.delete):
            with pytest.raises(MissingBody):
                touch(hostile)
    assert (tmp_path / "secret").exists()
    assert list(store.ages()) == []


def test_a_filter_by_fields_reads_no_message_whose_name_tells(
    session: Session, tmp_path: Path
) -> None:
    with DynoQueue(session, D, shards=("a", "b"), body_store=FileBodies(tmp_path)) as queue:
        queue.push(
            [
                Message(id=f"{at}", priority=at, shard="ab"[at % 2], headers={"k": f"{at % 3}"})
                for at in range(6)
            ]
        )
        queue.push(Message(id="g", group="g", priority=9, payload=LARGE))
        for wanted, ids in [
            (Fields(), {"0", "1", "2", "3", "4", "5", "g"}),
            (Fields(shard="a", priority=range(1, 9)), {"2", "4"}),
            (Fields(headers={"k": "0"}), {"0", "3"}),
            (Fields(group="g"), {"g"}),
            (Fields(id="5"), {"5"}),
            (Fields(priority=77), set()),
        ]:
            assert {one.id for one in queue.all_messages(wanted)} == ids
            assert queue.contains(wanted) == bool(ids)
        asked: list[str] = []
        read = session.child_data_async
        session.child_data_async = lambda parent, names: (
            asked.extend(names),
            read(parent, names),
        )[1]  # type: ignore[method-assign]
        assert queue.find(Fields(shard="b", priority=3)).id == "3"
        assert len(asked) == 1
        assert queue.pop_where(Fields(headers={"k": "2"})).id == "2"


def test_what_is_left_over_is_found_and_deleted_and_nothing_else(session: Session) -> None:
    with DynoQueue(session, D) as queue:
        queue.push([Message(id=id) for id in ("leased", "rests", "waits", "gone")])
        leased, rests, _, gone = queue.pop(4, 30)
        rests.postpone(3600)
        gone_name, shard = gone.name, f"{D}/shards/0"
        assert queue.find_stale() == []
        session.delete(f"{shard}/messages/{gone_name}")
        session.create(f"{shard}/rests/1700000000000-0-{gone_name}")
        session.create(f"{shard}/rests/1700000000000-7-{rests.name}")
        session.create(f"{D}/ids/nobody", b"0/x")
        found = {one.path: one.why.split()[1] for one in queue.find_stale(repair=True)}
        assert found == {
            f"{shard}/claims/{gone_name}": "claim",
            f"{shard}/rests/1700000000000-0-{gone_name}": "marker",
            f"{shard}/rests/1700000000000-7-{rests.name}": "marker",
            f"{D}/ids/gone": "message",
            f"{D}/ids/nobody": "message",
        }
        assert queue.find_stale() == []
        leased.ack()
        assert queue.shard_sizes()["0"] == {"messages": 2, "resting": 1, "leased": 1, "dead": 0}
        assert queue.set_timeout("rests", 0)
