"""Credentials that may do everything with the queue and its locks, and nothing beside them."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.security import make_acl, make_digest_acl

from leaderq.errors import NoPermission
from leaderq.queues import DistributedQueue, Retry, SimpleDistributedQueue
from leaderq.queues.admin.contents import delete_tree
from leaderq.testing import eventually
from leaderq.zookeeper import Security, connect


@pytest.fixture
def app(address, kazoo):
    """May read ``/app``, and do everything at and below ``q``, ``locks`` and ``side`` in it."""
    others = make_acl("world", "anyone", read=True, delete=True)
    kazoo.create("/app")
    for name in ("q", "locks", "side"):
        kazoo.create(f"/app/{name}", acl=[make_digest_acl("app", "1", all=True), others])
    kazoo.set_acls("/app", [others])
    with connect(address, security=Security(user="app", password="1")) as session:
        yield session
        for name in ("q", "locks", "side"):
            for child in session.children(f"/app/{name}"):
                delete_tree(session, f"/app/{name}/{child}")


def test_the_error_says_why_side_data_is_needed_and_where_it_may_go(app):
    for refused in (
        lambda: DistributedQueue(app, "/app/q").start(),
        lambda: SimpleDistributedQueue(app, "/app/q").offer(b"item", 10),
    ):
        with pytest.raises(NoPermission, match=r"side data lies beside the queue.*a meta_path="):
            refused()
    SimpleDistributedQueue(app, "/app/q", meta_path="/app/side").offer(b"item", 10)
    assert len(app.children("/app/q")) == 1


def test_everything_of_a_queue_goes_to_its_meta_path(app):
    def consume(value: bytes) -> None:
        if value == b"bad":
            raise ValueError("no")

    options: dict[str, Any] = {"lock_path": "/app/locks", "meta_path": "/app/side"}
    options["retry"] = Retry(attempts=1)
    with DistributedQueue(app, "/app/q", consumer=consume, max_items=5, **options) as queue:
        for value in (b"good", b"bad"):
            queue.put(value)
        eventually(lambda: queue.dead_letters.count() == 1 and queue.depth() == 0)
        assert set(app.children("/app/side")) >= {"members", "tallies", "claims", "bound", "dead"}
    assert sorted(app.children("/app")) == ["locks", "q", "side"]
