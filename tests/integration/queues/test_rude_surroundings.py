"""Strangers that put znodes, permissions and forks where nobody expects them, and items as large as
a request may be. One item may suffer; its neighbours may not, and nothing is lost or done for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from consumption import LOCKING, LOCKS, PATH, Seen, consuming, fill, is_empty
from kazoo.client import KazooClient
from kazoo.security import make_acl

from leaderq.base.clock import now_s
from leaderq.errors import TooLarge
from leaderq.queues import DistributedQueue, ErrorMode
from leaderq.queues.consuming import items
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.payload import decode
from leaderq.testing import eventually
from leaderq.threads import Retry

DEAD = f"{PATH}-dead"
SetAcl = Callable[[str, Any], None]
NOBODY = [make_acl("digest", "nobody:x", read=True)]


@pytest.fixture
def set_acl(address: str) -> Iterator[SetAcl]:
    client = KazooClient(address)
    client.start()
    yield client.set_acls
    client.stop()
    client.close()


@pytest.mark.parametrize(
    ("how", "kind", "lock"),
    [("child", QueueKind.PLAIN, True), ("unreadable", QueueKind.PRIORITY, False)],
)
def test_an_item_that_cannot_be_had_or_removed_does_not_stop_its_neighbours(
    session, set_acl, how, kind, lock
):
    options = {"priority": 3} if kind is QueueKind.PRIORITY else {}
    first, *_ = fill(session, [b"a", b"b", b"c", b"d"], kind, **options)
    if how == "child":
        session.create(f"{PATH}/{first}/child")
    else:
        set_acl(f"{PATH}/{first}", NOBODY)
    seen, began_s = Seen(), now_s()
    with consuming(session, seen, lock=lock, kind=kind):
        eventually(lambda: {b"b", b"c", b"d"} <= set(seen.values))
        for number in range(10):
            fill(session, [b"%d" % number], kind, **options)
            eventually(lambda value=b"%d" % number: value in seen.values)
        eventually(lambda: session.children(PATH) == [first])
        if how == "child":
            session.delete(f"{PATH}/{first}/child")
            eventually(lambda: is_empty(session))
        else:
            session.delete(f"{PATH}/{first}")
    assert seen.values.count(b"a") <= 2 + (now_s() - began_s) / items.TROUBLE_S
    assert not lock or session.children(LOCKS) == []


@LOCKING
@pytest.mark.parametrize("mode", [ErrorMode.REQUEUE, ErrorMode.KEEP])
def test_the_largest_item_of_all_is_tried_again_and_set_aside_like_others(session, lock, mode):
    with DistributedQueue(session, PATH) as queue:
        with pytest.raises(TooLarge) as raised:
            queue.put(bytes(session.max_request_bytes))
        queue.put(bytes(raised.value.limit - raised.value.size + session.max_request_bytes))
    calls = []

    def work(value: bytes) -> None:
        calls.append(len(value))
        raise ValueError("because " * 1000)

    twice = Retry(attempts=2, first_s=0.01, jitter=0)
    with consuming(session, work, lock=lock, error_mode=mode, retry=twice):
        eventually(lambda: is_empty(session) and session.exists(DEAD) and session.children(DEAD))
    (letter,) = session.children(DEAD)
    payload = decode(session.get(f"{DEAD}/{letter}")[0])
    assert [len(item) for item in payload.items] == [calls[0]]
    assert (payload.note.reason, payload.note.attempt, len(calls)) == ("attempts", 2, 2)


class Interrupted:
    """A serializer during which the user presses Ctrl-C, once."""

    def __init__(self) -> None:
        self.is_pressed = False

    def serialize(self, value: bytes) -> bytes:
        return value

    def deserialize(self, data: bytes) -> bytes:
        if not self.is_pressed:
            self.is_pressed = True
            raise KeyboardInterrupt
        return data


@LOCKING
def test_ctrl_c_while_an_item_is_read_is_heard_and_costs_no_item(session, lock):
    fill(session, [b"a"])
    with consuming(session, lock=lock, serializer=Interrupted()) as queue:
        with pytest.raises(KeyboardInterrupt):
            queue.take(60.0)
        with queue.take(60.0) as item:
            assert item.value == b"a"
    assert is_empty(session)
    assert session.exists(DEAD) is None
