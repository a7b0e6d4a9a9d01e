"""What is on its way to the offset store: one thing at a time, whatever becomes of the batch."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq.kafka.clients.consumer import MembershipLost, Offsets
from leaderq.kafka.consuming.commits import OffsetCommits
from leaderq.kafka.record import Partition

A = Partition("t", 0)
NOBODY: Any = None


class SlowCommit:
    """Done when the test says so."""

    error: Exception | None = None
    is_done = False

    def done(self, wait_s: float) -> bool:
        if self.error is not None:
            raise self.error
        return self.is_done


class SlowStore:
    """Begins what it is asked to."""

    def __init__(self) -> None:
        self.begun: list[Offsets] = []
        self.commits: list[SlowCommit] = []

    def commit(self, consumer: Any, term: Any, offsets: Offsets) -> SlowCommit:
        self.begun.append(offsets)
        self.commits.append(SlowCommit())
        return self.commits[-1]


@pytest.mark.parametrize("error", [None, MembershipLost("another generation")])
def test_what_was_under_way_when_its_batch_was_let_go_of_is_over_before_the_next_begins(
    error: Exception | None,
) -> None:
    store: Any = SlowStore()
    commits = OffsetCommits(store, NOBODY)
    commits.request({A: 5}, in_hand=True)
    commits.start(NOBODY)
    commits.drop()
    assert commits.outcome is False
    commits.request({A: 3}, in_hand=True)
    commits.start(NOBODY)
    assert store.begun == [{A: 5}]
    assert commits.is_busy
    store.commits[0].is_done, store.commits[0].error = error is None, error
    commits.start(NOBODY)
    assert store.begun == [{A: 5}, {A: 3}]


@pytest.mark.parametrize("error", [None, MembershipLost("refused")])
def test_that_nothing_of_a_batch_let_go_of_is_under_way_any_more_is_told(
    error: Exception | None,
) -> None:
    store: Any = SlowStore()
    commits = OffsetCommits(store, NOBODY)
    assert not commits.is_letting_go
    commits.request({A: 5}, in_hand=True)
    commits.start(NOBODY)
    commits.drop()
    assert commits.is_letting_go
    assert not commits.has_let_go()
    store.commits[0].is_done, store.commits[0].error = error is None, error
    assert commits.has_let_go()
    assert not commits.is_letting_go
