"""What is recorded by whom, and the schedule that a seed repeats."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice

import pytest

from leaderq import ILeaderCareer, LeaderCareer
from leaderq.testing import term
from leaderq.testing.nemesis import effect
from leaderq.testing.nemesis import faults as nemesis_faults
from leaderq.testing.nemesis import history as recording
from leaderq.testing.nemesis.careers import recorded
from leaderq.testing.nemesis.faults import schedule
from leaderq.testing.nemesis.history import Kind, What, own_history, read


@pytest.fixture
def history(tmp_path, monkeypatch):
    """The history of a worker of a nemesis: this process."""
    monkeypatch.setenv(recording.FOLDER, str(tmp_path))
    monkeypatch.setenv(recording.WORKER, str(os.getpid()))
    own_history.cache_clear()
    yield lambda: list(read(tmp_path / "history.jsonl"))
    own_history().close()
    own_history.cache_clear()


class Billing(LeaderCareer):
    def __init__(self):
        self.calls = []

    def inaugurate(self, term):
        self.calls.append("inaugurate")

    def execute(self, term):
        self.calls.append("execute")
        effect(term)

    def handOver(self, term):  # noqa: N802
        self.calls.append("handOver")


class Bare(ILeaderCareer):
    inaugurate = Billing.inaugurate
    execute = Billing.execute
    handOver = Billing.handOver  # noqa: N815
    __init__ = Billing.__init__


@pytest.mark.parametrize("career", [Billing, Bare])
def test_every_stage_of_a_users_career_is_recorded_before_it_acts(career, history) -> None:
    watched, seventh = recorded(career)(), term(number=7)
    watched.inaugurate(seventh)
    watched.execute(seventh)
    seventh.ending.set()
    watched.handOver(seventh)
    assert watched.calls == ["inaugurate", "execute", "handOver"]
    stages = [What.INAUGURATED, What.UNIT, What.EFFECT, What.HANDED_OVER]
    assert [line.what for line in history()] == stages
    assert {(line.term, line.pid) for line in history()} == {(7, os.getpid())}
    assert type(watched).__name__ == career.__name__


def rounds(seed: int, count: int = 6):
    return list(islice(schedule(seed, 5.0), count))


def test_a_seed_repeats_its_schedule_and_another_one_does_not() -> None:
    assert rounds(7) == rounds(7)
    assert rounds(7) != rounds(8)


def test_every_kind_of_fault_comes_and_lasts_as_long_as_it_should() -> None:
    faults = [fault for faults in rounds(7, 40) for fault in faults]
    counts = Counter(fault.kind for fault in faults)
    assert set(counts) == set(Kind)
    assert max(counts.values()) <= 5 * min(counts.values())
    lease_s = 2 / 3 * 5.0
    assert all(fault.lasts_s > lease_s for fault in faults if fault.kind is Kind.LOSE_QUORUM)
    assert all(fault.lasts_s >= 5.0 for fault in faults if fault.kind is Kind.PAUSE)
    freezes = [fault.lasts_s for fault in faults if fault.kind is Kind.FREEZE_BOTH]
    assert min(freezes) < lease_s < 5.0 < max(freezes)


def request(operation: int, body: bytes) -> bytes:
    return b"\0\0\0\1" + operation.to_bytes(4, "big") + body


REQUESTS = {
    Kind.LOSE_CREATE: request(1, b"/c/candidates/_c_123-latch-"),
    Kind.LOSE_CLAIM: request(14, b'/c/term{"number":7,"stage":"inauguration","reason":null}'),
    Kind.LOSE_RELEASE: request(14, b'/c/term{"number":7,"stage":"execution","reason":"step-down"}'),
    Kind.LOSE_RENEWAL: request(14, b"/c/candidates/_c_123-latch-0000000001"),
    Kind.LOSE_READ: request(22, b"/c/candidates"),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_the_request_whose_reply_is_lost_is_known_by_its_content(kind) -> None:
    assert [other for other, body in REQUESTS.items() if nemesis_faults.REQUESTS[kind](body)] == [
        kind
    ]
