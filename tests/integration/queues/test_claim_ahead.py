"""How much a consumer takes ahead, and what becomes of that when it is stuck."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from consumption import LOCKS, PATH, Seen, Stuck

from leaderq.errors import ConfigurationError, ConnectionLost
from leaderq.queues import JSON, DistributedPriorityQueue, DistributedQueue, QueueBuilder
from leaderq.queues.consuming.engine import Engine
from leaderq.queues.consuming.listing import QueueListing
from leaderq.reading import children_of
from leaderq.testing import eventually
from leaderq.zookeeper import Session

Open = Callable[..., Session]


@pytest.mark.parametrize("values", [1, 30])
def test_without_a_lock_path_no_more_than_claim_ahead_is_deleted_and_not_begun(
    opened: Open, values: int
) -> None:
    stuck, total = Stuck(500), 3000
    with DistributedQueue(opened(), "/q") as producer:
        if values == 1:
            producer.put_many([b"item"] * total)
        else:
            for _ in range(total // values):
                producer.put_multi([b"item"] * values)
        queue = DistributedQueue(opened(), "/q", consumer=stuck, claim_ahead=50, final_flush_s=60.0)
        with queue:
            assert stuck.entered.wait(60)
            ahead = total - producer.depth() * values - 500
            stuck.released.set()
            eventually(lambda: len(stuck.seen.values) == total, timeout_s=60)
    assert ahead <= 50 + values


def test_items_claimed_ahead_by_a_stuck_consumer_without_a_lock_path_go_to_others_in_place(
    opened: Open,
) -> None:
    stuck, seen = Stuck(300), Seen()
    values = [b"%04d" % number for number in range(2000)]
    with DistributedQueue(opened(), "/q") as producer:
        producer.put_many(values)
        with DistributedQueue(opened(), "/q", consumer=stuck, final_flush_s=60.0):
            assert stuck.entered.wait(60)
            try:
                with DistributedQueue(opened(), "/q", consumer=seen):
                    seen.wait_for(1700, timeout_s=30)
                assert sorted(stuck.seen.values + seen.values) == values
            finally:
                stuck.released.set()
    assert len(stuck.seen.values) == 300


@pytest.mark.parametrize("lock_path", [None, LOCKS])
def test_what_is_released_is_found_again_if_its_return_is_heard_of_before_it_is_confirmed(
    session: Session, monkeypatch: pytest.MonkeyPatch, lock_path: str | None
) -> None:
    confirm = Engine._on_settled

    def confirm_late(*answer: Any) -> None:
        threading.Timer(0.5, confirm, answer).start()

    monkeypatch.setattr(Engine, "_on_settled", confirm_late)
    stuck = Stuck(200)
    with DistributedPriorityQueue(session, PATH, serializer=JSON) as producer:
        producer.put_many(list(range(300)), 0)
    with DistributedPriorityQueue(
        session, PATH, serializer=JSON, consumer=stuck, lock_path=lock_path
    ) as queue:
        assert stuck.entered.wait(60)
        eventually(
            lambda: queue.depth() - len(children_of(session, LOCKS)) == 100,
            message="what was claimed ahead is released",
        )
        stuck.released.set()
        assert sorted(stuck.seen.wait_for(300, timeout_s=5)) == list(range(300))


def test_what_was_claimed_when_the_connection_was_lost_is_worked_on(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = QueueListing.apply_events
    lost: list[str] = []

    def lose_once(listing: QueueListing) -> None:
        if not lost and sys._getframe(1).f_code.co_name == "_claimed":
            lost.append("connection")
            raise ConnectionLost("the locks could not be read")
        apply(listing)

    monkeypatch.setattr(QueueListing, "apply_events", lose_once)
    seen = Seen()
    with DistributedPriorityQueue(
        session, PATH, serializer=JSON, consumer=seen, lock_path=LOCKS
    ) as queue:
        queue.put_many(list(range(5)), 0)
        assert sorted(seen.wait_for(5, timeout_s=10)) == list(range(5))
    assert lost


@pytest.mark.parametrize("lock_path", [None, "/locks"])
def test_a_consumer_that_is_paused_holds_nothing_that_it_has_not_begun(
    opened: Open, lock_path: str | None
) -> None:
    stuck, seen = Stuck(200), Seen()
    options: dict[str, Any] = {"lock_path": lock_path, "serializer": JSON, "final_flush_s": 60.0}
    with DistributedQueue(opened(), "/q", **options) as producer:
        producer.put_many(list(range(300)))
        with DistributedQueue(opened(), "/q", consumer=stuck, **options) as paused:
            assert stuck.entered.wait(60)
            paused.pause()
            stuck.released.set()
            with DistributedQueue(opened(), "/q", consumer=seen, **options):
                eventually(lambda: len(stuck.seen.values) + len(seen.values) == 300, timeout_s=30)
                assert sorted(stuck.seen.values + seen.values) == list(range(300))


def test_a_claim_ahead_that_is_not_a_number_of_values_is_refused(session: Session) -> None:
    with pytest.raises(ConfigurationError, match="claim_ahead=-1: give 0 or more values"):
        QueueBuilder.builder(session, path="/q").keywords(claim_ahead=-1).build_queue()
