"""A record to be tried again later: its partition rests, the others go on."""

from __future__ import annotations

import pytest
from fake_career import (
    A,
    B,
    FakeCareer,
    FakeMarks,
    FakeRateLimiter,
    a_batch,
    a_handler,
    open_term,
    records,
)

from leaderq.kafka.consuming.positions import Positions
from leaderq.kafka.handling import batch_handler
from leaderq.kafka.handling.batch_handler import BatchHandler
from leaderq.kafka.handling.on_error import retry
from leaderq.kafka.record import Batch, Partition

ALWAYS = 1000
LATER = retry(2, backoff_s=0.5, then="skip")


def resting(career: FakeCareer, on_error: object = LATER, **more: object) -> BatchHandler:
    def rest(partition: Partition, for_s: float) -> bool:
        career.log.append(f"rest {'AB'[partition.number]} {for_s:g}")
        return True

    return a_handler(career, on_error, rest=rest, **more)


def test_the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again() -> None:
    career, term = FakeCareer(fails={(A, 1): 2}, names=True), open_term(7)
    handler = resting(career)
    assert handler.work(a_batch(A=[0, 1, 2], B=[0, 1]), term)
    assert handler.work(a_batch(B=[2]), term)
    assert handler.work(a_batch(A=[1, 2], B=[3]), term)
    assert handler.work(a_batch(A=[1, 2, 3]), term)
    assert career.log == [
        *("handle A0 A1 A2 B0 B1", "commit A=1", "rest A 0.5", "handle B0 B1", "commit B=2"),
        *("handle B2", "commit B=3"),
        *("handle A1", "rest A 1", "handle B3", "commit B=4"),
        *("handle A1", "commit A=2", "handle A2 A3", "commit A=4"),
    ]


def test_attempts_are_counted_over_all_batches() -> None:
    career, term = FakeCareer(fails={(A, 0): ALWAYS}, names=True), open_term(7)
    handler = resting(career)
    for _ in range(3):
        assert handler.work(a_batch(A=[0, 1]), term)
    assert career.log[-5:] == ["rest A 1", "handle A0", "commit A=1", "handle A1", "commit A=2"]
    assert career.log.count("handle A0") == 2


def test_where_nobody_knows_the_culprit_the_whole_part_of_its_partition_is_tried_again() -> None:
    career, term = FakeCareer(fails={(A, 1): 1}), open_term(7)
    handler = resting(career, batches="partition")
    assert handler.work(a_batch(A=[0, 1], B=[0]), term)
    assert handler.work(a_batch(A=[0, 1, 2]), term)
    assert career.log == [
        *("handle A0 A1", "rest A 0.5", "handle B0", "commit B=1"),
        *("handle A0 A1", "handle A2", "commit A=3"),
    ]


def test_offsets_that_somebody_has_moved_are_begun_from_scratch() -> None:
    career, term = FakeCareer(fails={(A, 0): 1}, names=True), open_term(7)
    handler = resting(career)
    handler.work(a_batch(A=[0, 1]), term)
    handler.work(a_batch(A=[5, 6]), term)
    assert career.log[-2:] == ["handle A5 A6", "commit A=7"]


@pytest.mark.parametrize(
    "why", ["short", "several partitions", "at most once", "marked", "rate limit"]
)
def test_all_wait_where_the_partition_cannot_rest_alone(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_handler, "REST_FROM_S", 0.02)
    backoff_s = 0.01 if why == "short" else 0.02
    career = FakeCareer(fails={(A, 0): 1}, names=why != "several partitions")
    more: dict[str, object] = {}
    if why == "marked":
        more["marks"] = FakeMarks(career, {A: 1})
    if why == "rate limit":
        more["rate_limit"] = FakeRateLimiter(career, 10, 0.0)
    delivery = "at_most_once" if why == "at most once" else "at_least_once"
    handler = resting(career, retry(1, backoff_s, then="skip"), delivery=delivery, **more)
    assert handler.work(a_batch(A=[0], B=[0]), open_term(7))
    assert not [line for line in career.log if line.startswith("rest")]
    assert (A, 0) in career.effects


def test_a_resting_partition_has_nothing_in_hand_and_is_read_from_its_committed_offset() -> None:
    positions = Positions({A: 3, B: 0})
    positions.hand(Batch({A: records(A, 3, 4), B: records(B, 0)}, {A: 5, B: 1}))
    positions.settle({A: 4})
    positions.release((A,))
    assert positions.handed == {A: 4, B: 1}
    assert positions.in_hand is not None
    assert positions.in_hand.ends == {B: 1}
    positions.release((B,))
    assert positions.in_hand is None
