"""What put returns, and how an item is taken back by it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from consumption import Held

from leaderq.errors import QueueClosed
from leaderq.queues import DistributedQueue
from leaderq.testing import eventually
from leaderq.zookeeper import Session

Open = Callable[..., Session]
LOCKS = pytest.mark.parametrize("lock_path", [None, "/locks"])


@LOCKS
def test_an_item_is_taken_back_by_its_name_unless_somebody_has_begun_it(
    opened: Open, lock_path: str | None
) -> None:
    held = Held()
    with DistributedQueue(opened(), "/q", lock_path=lock_path) as producer:
        begun = producer.put(b"begun")
        options = {"lock_path": lock_path, "claim_ahead": 0, "final_flush_s": 30.0}
        with DistributedQueue(opened(), "/q", consumer=held, **options):
            assert held.entered.wait(60)
            waiting, other = producer.put(b"waiting"), producer.put_multi([b"two", b"more"])
            assert [name[:6] for name in (begun, waiting, other) if isinstance(name, str)] == [
                "queue-"
            ] * 3
            assert producer.cancel(str(waiting))
            assert not producer.cancel(str(waiting))
            assert not producer.cancel(str(begun))
            held.released.set()
            eventually(lambda: held.seen.values == [b"begun", b"two", b"more"])
    with pytest.raises(QueueClosed):
        producer.cancel(str(other))


def test_a_queue_can_be_iterated_until_it_is_closed(session: Session) -> None:
    seen: list[bytes] = []

    def work(queue: DistributedQueue[bytes]) -> None:
        for item in queue:
            with item:
                seen.append(item.value)

    with ThreadPoolExecutor(1) as pool, DistributedQueue(session, "/q") as queue:
        working = pool.submit(work, queue)
        queue.put_many([b"one", b"two"])
        queue.put_multi([b"three", b"four"])
        eventually(lambda: len(seen) == 4)
        queue.close()
        assert working.result(60) is None
    assert seen == [b"one", b"two", b"three", b"four"]
    with pytest.raises(QueueClosed):
        next(iter(DistributedQueue(session, "/never-started")))
