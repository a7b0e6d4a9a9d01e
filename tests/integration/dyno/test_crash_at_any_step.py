"""A process that dies after any of the writes of any method leaves each message in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leaderq.dyno import Delivery, DynoQueue, Message, OnConflict
from leaderq.dyno.layout import parsed_rest
from leaderq.errors import LeaderqError
from leaderq.queues import RetryPolicy
from leaderq.zookeeper import Session, end_session

Open = Callable[..., Session]
D = "/d"
SHARD = f"{D}/shards/0"


class Dying:
    """A session that is dead after so many multis: it sends no more, and its znodes vanish."""

    def __init__(self, session: Session, writes: int) -> None:
        self._session, self._left = session, writes
        self._send = session.multi_async
        session.multi_async = self._multi  # type: ignore[method-assign]

    def _multi(self, operations: Any, **options: Any) -> Any:
        if self._left <= 0:
            credentials = self._session.credentials
            self._session.drop_connection()
            if credentials is not None:
                end_session(self._session.address, credentials)
            raise LeaderqError("dead")
        self._left -= 1
        return self._send(operations, **options)


def one_place(session: Session) -> str:
    """Where the one message is; asserts that it is in one place, with all that goes with it."""
    if session.exists(SHARD) is None:  # it died before it had made the queue
        return "gone"
    messages, claims, rests, dead = (
        set(session.children(f"{SHARD}/{part}")) for part in ("messages", "claims", "rests", "dead")
    )
    assert len(messages) + len(dead) <= 1
    assert claims <= messages
    resting = [rest.name for marker in rests if (rest := parsed_rest(marker)) is not None]
    assert set(resting) <= claims
    assert len(set(resting)) == len(resting)
    ids = session.children(f"{D}/ids")
    assert len(ids) == len(messages), "an id outlives its message, or the message its id"
    return (
        "dead"
        if dead
        else "resting"
        if rests
        else "leased"
        if claims
        else "waiting"
        if messages
        else "gone"
    )


def popped(queue: DynoQueue) -> Delivery:
    (one,) = queue.pop(1, 30)
    return one


METHODS: dict[str, tuple[Callable[[DynoQueue], object], set[str]]] = {
    "push": (lambda queue: queue.push(Message(id="other", payload=b"2")), {"waiting"}),
    "pop": (popped, {"waiting", "leased"}),
    "ack": (lambda queue: popped(queue).ack(), {"waiting", "leased", "gone"}),
    "nack": (lambda queue: popped(queue).nack("no"), {"waiting", "leased", "resting"}),
    "release": (lambda queue: popped(queue).release(), {"waiting", "leased", "resting"}),
    "extend": (lambda queue: popped(queue).extend(9), {"waiting", "leased"}),
    "kill": (lambda queue: popped(queue).kill(), {"waiting", "leased", "dead"}),
    "postpone and pop": (
        lambda queue: (popped(queue).postpone(0), popped(queue)),
        {"waiting", "leased", "resting"},
    ),
    "remove": (lambda queue: queue.remove("a"), {"waiting", "gone"}),
    "remove in flight": (
        lambda queue: (popped(queue), queue.remove("a")),
        {"waiting", "leased", "gone"},
    ),
    "replace": (
        lambda queue: queue.push_unique(Message(id="a", payload=b"2"), OnConflict.REPLACE),
        {"waiting"},
    ),
    "set time-out": (lambda queue: queue.set_timeout("a", 600), {"waiting", "resting"}),
    "set it twice": (
        lambda queue: (queue.set_timeout("a", 600), queue.set_timeout("a", 0)),
        {"waiting", "resting"},
    ),
    "redrive": (
        lambda queue: (popped(queue).kill(), queue.dead_letters.redrive()),
        {"waiting", "leased", "dead"},
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_crash_after_any_write_leaves_the_message_in_one_place(opened: Open, method: str) -> None:
    act, places = METHODS[method]
    is_push = method == "push"
    seen: set[str] = set()
    for writes in range(6):
        session = opened()
        session.ensure_path(D)
        with DynoQueue(session, D) as queue:
            queue.clear()
            queue.dead_letters.purge()
            if not is_push:
                queue.push(Message(id="a", payload=b"1"))
        doomed = opened(timeout_s=4)
        queue = DynoQueue(doomed, D, retry=RetryPolicy(backoff_s=0))
        queue.size()
        Dying(doomed, writes)
        try:
            act(queue)
            is_whole = True
        except LeaderqError:
            is_whole = False
        doomed.close()
        place = one_place(session)
        seen.add(place)
        assert place in places | ({"gone"} if is_push else set())
        with DynoQueue(session, D) as after:
            after.set_timeout("a", 0)
            if place in ("waiting", "leased", "resting"):
                popped(after).ack()
            assert one_place(session) in ("gone", "dead")
        session.close()
        if is_whole:
            break
    else:
        pytest.fail(f"{method} takes more than six writes")
    assert len(seen) > 1 or len(places) == 1
