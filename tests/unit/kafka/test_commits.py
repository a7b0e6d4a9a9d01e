"""What is on its way to the offset store: one thing at a time, whatever becomes of the batch."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq.kafka.clients.consumer import KafkaAway, MembershipLost, Offsets
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
def test_what_was_under_way_when_its_batch_was_abandoned_is_over_before_the_next_begins(
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


def test_a_commit_that_is_slow_because_it_is_tried_again_and_again_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = iter(range(100))
    monkeypatch.setattr("leaderq.clock.now_s", lambda: float(next(times)))
    store: Any = SlowStore()
    commits = OffsetCommits(store, NOBODY)
    commits.request({A: 5}, in_hand=True)
    for _ in range(5):
        commits.start(NOBODY)
        assert commits.finish(may_wait=True) is None
        store.commits[-1].error = KafkaAway("no answer")
        with pytest.raises(KafkaAway):
            commits.finish(may_wait=True)
    assert caplog.text.count("offset commit is slow") == 1


@pytest.mark.parametrize("error", [None, MembershipLost("refused")])
def test_that_nothing_of_an_abandoned_batch_is_under_way_any_more_is_told(
    error: Exception | None,
) -> None:
    store: Any = SlowStore()
    commits = OffsetCommits(store, NOBODY)
    assert not commits.is_abandoning
    commits.request({A: 5}, in_hand=True)
    commits.start(NOBODY)
    commits.drop()
    assert commits.is_abandoning
    assert not commits.has_abandoned()
    store.commits[0].is_done, store.commits[0].error = error is None, error
    assert commits.has_abandoned()
    assert not commits.is_abandoning
