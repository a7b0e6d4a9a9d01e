"""Payloads in a store beside ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from leaderq.dyno import BodyStore, Duplicate, DynoQueue, Message, MissingBody, Worker
from leaderq.errors import TooLarge
from leaderq.queues import Retry
from leaderq.testing import eventually
from leaderq.zookeeper import Session

D = "/d"
LARGE = b"x" * 2_000_000


class Store:
    """Bodies by their references, and how old each is."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.age_s: dict[str, float] = {}

    def put(self, body: bytes) -> str:
        reference = str(len(self.age_s))
        self.kept[reference], self.age_s[reference] = body, 0.0
        return reference

    def get(self, reference: str) -> bytes:
        if reference not in self.kept:
            raise MissingBody(reference)
        return self.kept[reference]

    def delete(self, reference: str) -> None:
        self.kept.pop(reference, None)

    def ages(self) -> list[tuple[str, float]]:
        return [(reference, self.age_s[reference]) for reference in self.kept]


@pytest.fixture
def store() -> BodyStore:
    return Store()


@pytest.fixture
def queue(session: Session, store: Store) -> Iterator[DynoQueue]:
    with DynoQueue(session, D, body_store=store, retry=Retry(attempts=2, first_s=0)) as made:
        yield made


def test_a_large_payload_goes_through_the_store_and_is_gone_with_its_message(
    queue: DynoQueue, store: Store
) -> None:
    ends: list[Callable[[], object]] = [
        lambda: queue.ack(queue.pop(1, 30)),
        lambda: queue.pop(1, 30)[0].ack(),
        lambda: queue.remove("a"),
        lambda: queue.clear(),
        lambda: (queue.pop(1, 30)[0].kill(), queue.dead_letters.requeue(), queue.remove("a")),
        lambda: (queue.pop(1, 30)[0].kill(), queue.dead_letters.drop()),
    ]
    for end in ends:
        queue.push(Message(id="a", payload=LARGE))
        assert len(store.kept) == 1
        (peeked,) = queue.peek(1) or eventually(lambda: queue.peek(1))
        assert peeked.payload == LARGE
        end()
        assert store.kept == {}
    queue.push(Message(payload=b"small"))
    assert store.kept == {}
    assert queue.pop(1, 30)[0].payload == b"small"


def test_a_refused_push_leaves_no_body(queue: DynoQueue, store: Store) -> None:
    queue.push(Message(id="a", payload=b"small"))
    with pytest.raises(Duplicate):
        queue.push(Message(id="a", payload=LARGE))
    assert not queue.ensure(Message(id="a", payload=LARGE))
    with pytest.raises(TooLarge, match="message without an id"):
        queue.push(Message(payload=LARGE, headers={"h": "x" * 2_000_000}))
    assert store.kept == {}


def test_a_message_whose_body_is_lost_fails_and_is_dead_at_last(
    queue: DynoQueue, store: Store
) -> None:
    queue.push([Message(payload=LARGE), Message(payload=b"next")])
    store.kept.clear()
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
    queue: DynoQueue, store: Store
) -> None:
    young, old = store.put(b"young"), store.put(b"old")
    queue.push([Message(id="waits", payload=LARGE), Message(id="dies", payload=LARGE, priority=0)])
    (one,) = [found] if (found := queue.pop_id("dies")) else []
    one.kill()
    store.age_s = {reference: 7200.0 * (reference != young) for reference in store.age_s}
    assert queue.sweep_bodies(older_s=3600) == 1
    assert old not in store.kept
    assert len(store.kept) == 3
