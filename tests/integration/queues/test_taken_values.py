"""Values put as one znode and taken on request: each is an item of its own, and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from leaderq.errors import ClaimLost
from leaderq.queues import TEXT, DistributedQueue, ErrorMode, RetryPolicy
from leaderq.queues.consuming import consumption
from leaderq.reading import children_of
from leaderq.testing import ZooKeeperServer, eventually
from leaderq.zookeeper import Create, Session, end_session

Open = Callable[..., Session]
AT_ONCE = RetryPolicy(attempts=3, backoff_s=0.0)
BOTH = pytest.mark.parametrize("lock_path", [None, "/locks"])


def queue_of(
    session: Session, lock_path: str | None = "/locks", **options: Any
) -> DistributedQueue[str]:
    return DistributedQueue(
        session, "/q", serializer=TEXT, lock_path=lock_path, retry=AT_ONCE, **options
    )


def taken(queue: DistributedQueue[str], count: int) -> list[Any]:
    items = [queue.take(60) for _ in range(count)]
    assert None not in items
    return items


@BOTH
def test_a_loop_over_take_sees_every_value_and_the_znode_goes_with_the_last(
    session: Session, lock_path: str | None
) -> None:
    with queue_of(session, lock_path) as queue:
        queue.put_multi(["one", "two", "three"])
        queue.put("four")
        seen = []
        while (item := queue.take(0.5)) is not None:
            with item:
                seen.append(item.value)
                assert queue.depth() >= (0 if lock_path is None else 1 if len(seen) == 4 else 2)
        assert seen == ["one", "two", "three", "four"]
        assert (queue.depth(), queue.dead_letters.count()) == (0, 0)


@BOTH
@pytest.mark.parametrize("mode", [ErrorMode.REQUEUE, ErrorMode.KEEP])
def test_a_value_that_failed_comes_again_without_those_that_are_done(
    session: Session, lock_path: str | None, mode: ErrorMode
) -> None:
    with queue_of(session, lock_path, error_mode=mode) as queue:
        queue.put_multi(["one", "two", "three"])
        one, two, three = taken(queue, 3)
        two.fail(ValueError("not this one"))
        three.ack()
        one.ack()
        (again,) = taken(queue, 1)
        assert (again.value, again.attempt) == ("two", 2)
        again.requeue()
        (again,) = taken(queue, 1)
        assert (again.value, again.attempt) == ("two", 3)
        again.fail(ValueError("nor now"))
        eventually(lambda: queue.dead_letters.count() == 1)
        assert [letter.found.items for letter in queue.dead_letters.browse()] == [[b"two"]]
        assert queue.take(0.2) is None


def test_a_value_acknowledged_with_operations_is_written_off_with_them(
    opened: Open, session: Session, zookeeper_server: ZooKeeperServer
) -> None:
    session.ensure_path("/done")
    with queue_of(session) as producer:
        producer.put_multi(["one", "two", "three"])
    lost = opened()
    queue = queue_of(lost)
    queue.start()
    one, two, three = taken(queue, 3)
    two.ack([Create("/done/two")])
    three.ack()
    credentials = lost.credentials
    assert credentials is not None
    assert end_session(zookeeper_server.address, credentials, timeout_s=60.0)
    with pytest.raises(ClaimLost):
        one.ack([Create("/done/one")])
    assert session.children("/done") == ["two"]
    with queue_of(session) as other:
        assert sorted(item.value for item in taken(other, 2)) == ["one", "three"]
    queue.close()


@BOTH
def test_closing_gives_back_what_was_not_taken_and_keeps_what_is_in_hand(
    opened: Open, lock_path: str | None
) -> None:
    queue = queue_of(opened(), lock_path)
    queue.start()
    queue.put_multi(["one", "two", "three"])
    with queue_of(opened(), lock_path) as other:
        queue.take(60).ack()
        queue.close()
        assert [(item.value, item.attempt) for item in taken(other, 2)] == [
            ("two", 1),
            ("three", 1),
        ]


@BOTH
@pytest.mark.parametrize("is_operators", [False, True])
def test_a_paused_queue_hands_out_no_further_value_of_a_znode_and_keeps_none(
    session: Session, lock_path: str | None, is_operators: bool
) -> None:
    with queue_of(session, lock_path) as queue:
        queue.put_multi(["one", "two", "three"])
        (one,) = taken(queue, 1)
        if is_operators:
            session.create("/q-meta/control", b'{"paused": true}')
            eventually(lambda: queue.is_paused)
        else:
            queue.pause()
            assert queue.take(0.0) is None
        one.ack()
        eventually(lambda: queue.depth() == 1 and not children_of(session, "/locks"))
        assert queue.take(0.1) is None
        session.delete("/q-meta/control") if is_operators else queue.resume()
        assert [(item.value, item.attempt) for item in taken(queue, 2)] == [
            ("two", 1),
            ("three", 1),
        ]


@BOTH
def test_values_that_nobody_asks_for_go_to_others_once_none_of_their_znode_is_in_hand(
    opened: Open, lock_path: str | None
) -> None:
    with queue_of(opened(), lock_path) as queue, queue_of(opened(), lock_path) as other:
        queue.put_multi(["one", "two", "three"])
        taken(queue, 1)[0].ack()
        assert sorted(item.value for item in taken(other, 2)) == ["three", "two"]


@BOTH
def test_values_that_nobody_asks_for_wait_while_another_of_their_znode_is_in_hand(
    session: Session, lock_path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumption, "_IDLE_S", 0.0)
    with queue_of(session, lock_path) as queue:
        queue.put_multi(["one", "two"])
        (one,) = taken(queue, 1)
        engine, looks = queue._consumption.engine, list[bool]()
        look = engine.give_back_idle
        monkeypatch.setattr(engine, "give_back_idle", lambda: looks.append(look()) or looks[-1])
        eventually(lambda: len(looks) > 3)
        assert all(looks)
        (two,) = taken(queue, 1)
        assert two.name == one.name


def test_several_threads_share_the_values_of_one_znode(session: Session) -> None:
    with queue_of(session) as queue, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(queue.take, 60) for _ in range(3)]
        queue.put_multi(["one", "two", "three"])
        items = [one.result() for one in waiting]
        assert sorted(item.value for item in items) == ["one", "three", "two"]
        list(pool.map(lambda item: item.ack(), items))
        assert queue.depth() == 0


@BOTH
@pytest.mark.parametrize("is_pushed", [False, True])
def test_a_value_that_cannot_be_read_is_set_aside_without_its_neighbours(
    session: Session, lock_path: str | None, is_pushed: bool
) -> None:
    seen: list[str] = []
    with DistributedQueue(session, "/q") as raw:
        raw.put_multi([b"one", b"\xff", b"three"])
    with queue_of(session, lock_path, consumer=seen.append if is_pushed else None) as queue:
        if not is_pushed:
            for item in taken(queue, 2):
                with item:
                    seen.append(item.value)
        eventually(lambda: len(seen) == 2 and queue.depth() == 0)
        eventually(lambda: queue.dead_letters.count() == 1)
        (letter,) = queue.dead_letters.browse()
        assert (seen, letter.found.items, letter.note.reason) == (
            ["one", "three"],
            [b"\xff"],
            "corrupt",
        )
