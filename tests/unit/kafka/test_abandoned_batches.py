"""A batch is abandoned while its commit is under way: that commit may still happen, after the
offsets were loaded.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from leaderq.clock import now_s
from leaderq.kafka.clients.consumer import KafkaAway, Offsets
from leaderq.kafka.consuming.read_ahead import BatchLimits
from leaderq.kafka.consuming.report import DrainReport
from leaderq.kafka.consuming.term_consumer import ConsumingPlan, JoinGate, TermConsumer
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.kafka.stores.offset_store import DoneAtOnce
from leaderq.term import OpenTerm

A, B, C = Partition("t", 0), Partition("t", 1), Partition("t", 2)


class Member:
    """A consumer in a group that takes partitions away; a poll returns five records of each."""

    is_joining = False

    def __init__(self) -> None:
        self.joins, self.held = 1, frozenset({A, B})
        self.next: dict[Partition, int] = {}
        self.fails_at = ""

    def rebalanced(self, *held: Partition) -> None:
        self.joins, self.held = self.joins + 1, frozenset(held)

    def _fail(self, at: str) -> None:
        if self.fails_at == at:
            self.fails_at = ""
            raise KafkaAway("for a moment")

    def assigned(self) -> frozenset[Partition]:
        return self.held

    existing = assigned

    def seek(self, offsets: Offsets, resting: Any = ()) -> None:
        self._fail("seek")
        self.next = dict(offsets)

    def start_offsets(self, timeout_s: float) -> Offsets:
        self._fail("start_offsets")
        return dict.fromkeys(self.held, 0)

    def poll(self, timeout_s: float, max_records: int) -> dict[Partition, list[Record]]:
        found = {
            where: [_record(where, at + n) for n in range(5)] for where, at in self.next.items()
        }
        self.next = {where: at + 5 for where, at in self.next.items()}
        return found

    def topic_ids(self) -> dict[str, str]:
        return {"t": "id"}

    def attend(self, timeout_s: float) -> None:
        """Nothing changes by it."""

    def close(self) -> None:
        """Nothing is held."""


def _record(where: Partition, offset: int) -> Record:
    return Record(where.topic, where.number, offset, 0, b"key", b"value", ())


class SlowStore:
    """Its one commit takes until the test lets it happen, or fail."""

    in_group = undoes = True
    is_silent = False

    def __init__(self, offsets: Offsets) -> None:
        self.offsets = dict(offsets)
        self.under_way: Offsets | None = None
        self.error: Exception | None = None
        self.is_done = False

    def fence(self, *_: Any) -> bool:
        return True

    def load(self, *_: Any) -> dict[Partition, int]:
        return dict(self.offsets)

    def commit(self, _consumer: Any, _term: Any, offsets: Offsets) -> SlowStore:
        self.under_way = offsets
        return self

    def done(self, wait_s: float) -> bool:
        if self.error is not None:
            raise self.error
        return self.is_done

    def commit_positions(self, *_: Any) -> DoneAtOnce:
        return DoneAtOnce()

    def happen(self) -> None:
        assert self.under_way is not None
        self.offsets.update(self.under_way)
        self.is_done = True

    def close(self) -> None:
        """Nothing is held."""


class NoReports:
    """Nobody reads them."""

    def former(self) -> DrainReport:
        return DrainReport()


def _handed_out(term_consumer: TermConsumer, rounds: int = 5) -> Batch | None:
    for _ in range(rounds):
        if (batch := term_consumer.offer()) is not None:
            return batch
        time.sleep(term_consumer.wait_s())  # a back-off
        term_consumer.round()
    return None


class Leading:
    """A batch of the first five records of each partition is in hand, and the next one is ahead."""

    def __init__(self) -> None:
        self.member, self.store = Member(), SlowStore({A: 0, B: 0})
        member: Any = self.member
        reports: Any = NoReports()
        store: Any = self.store
        plan = ConsumingPlan(
            address="",
            make=lambda: member,
            store=store,
            career="c",
            reports=reports,
            batch_limits=BatchLimits(max_records=10),
        )
        term = OpenTerm(
            number=1,
            id="1",
            career="c",
            candidate="x",
            deadline=now_s() + 60,
            unclean=False,
            write=lambda *_: [],
        )
        self.term_consumer = TermConsumer(plan, JoinGate(term), member)
        batch = _handed_out(self.term_consumer)
        assert batch is not None
        assert batch.ends == {A: 5, B: 5}
        self.term_consumer.round()
        assert self.member.next == {A: 10, B: 10}

    def offsets(self) -> list[int] | None:
        """What is handed out of the partition that is left."""
        batch = _handed_out(self.term_consumer)
        return batch and [record.offset for record in batch.records[A]]


@pytest.mark.parametrize("happens", [True, False])
def test_records_of_an_abandoned_batch_are_handed_out_again_only_if_its_commit_has_failed(
    happens: bool,
) -> None:
    leading = Leading()
    leading.term_consumer.commits.request({A: 5, B: 5}, in_hand=True)
    leading.term_consumer.round()
    assert leading.store.under_way == {A: 5, B: 5}
    leading.member.rebalanced(A)
    leading.term_consumer.round()
    assert leading.offsets() is None  # it is not known yet where reading goes on
    assert leading.term_consumer.commits.outcome is False
    if happens:
        leading.store.happen()
    else:
        leading.store.error = KafkaAway("aborted")
    assert leading.offsets() == ([5, 6, 7, 8, 9] if happens else [0, 1, 2, 3, 4])


@pytest.mark.parametrize("fails_at", ["seek", "start_offsets"])
def test_what_was_read_behind_an_abandoned_batch_is_not_handed_out_before_it(fails_at: str) -> None:
    leading = Leading()
    leading.member.fails_at = fails_at
    leading.member.rebalanced(A, C)  # C was never committed
    leading.term_consumer.round()
    assert leading.member.fails_at == ""
    assert leading.offsets() == [0, 1, 2, 3, 4]
