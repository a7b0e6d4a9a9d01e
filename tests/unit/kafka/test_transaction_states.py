"""A transaction whose commit has no answer, is refused, or comes too late: without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leaderq import clock
from leaderq.errors import KafkaFenced
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway
from leaderq.kafka.clients.producer import TRANSACTION_TIMEOUT_S, Message
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.transaction_offsets import TransactionOffsets

A = Partition("t", 0)
TERM: Any = object()


class Broker:
    """Notes what all producers ask; ``answers`` to commits are raised, ``None``: committed."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.answers: list[Exception | None] = []
        self.stored: dict[Partition, int] = {}
        self.made = 0

    def make(self) -> Any:
        self.made += 1
        return Producer(self, self.made)

    @property
    def committed(self) -> int:
        return sum(what == "committed" for what, *_ in self.said)


class Producer:
    def __init__(self, broker: Broker, number: int) -> None:
        self._broker, self._number = broker, number

    def _note(self, what: str, *more: Any) -> None:
        self._broker.said.append((what, self._number, *more))

    def open(self) -> None:
        self._note("open")

    def fence(self, timeout_s: float) -> bool:
        self._note("fenced")
        return True

    def begin(self) -> None:
        self._note("begun")

    def produce(self, message: Any) -> None:
        self._note("produced", message.value)

    def commit(self, offsets: Any, group: Any, timeout_s: float) -> None:
        self._note("asked")
        answer = self._broker.answers.pop(0) if self._broker.answers else None
        if answer is not None:
            raise answer
        self._note("committed", dict(offsets))
        self._broker.stored.update(offsets)

    def abort(self, timeout_s: float) -> None:
        self._note("aborted")

    def close(self) -> None:
        self._note("closed")


class Consumer:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def join(self, allowed: Any, timeout_s: float) -> bool:
        return True

    def attend(self, timeout_s: float) -> None: ...

    def assigned(self) -> set[Partition]:
        return {A}

    def committed(self, timeout_s: float) -> dict[Partition, int]:
        return dict(self._broker.stored)

    def group_metadata(self) -> str:
        return "group"


class Leader:
    """A store of one term, which has fenced and loaded."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.consumer: Any = Consumer(self.broker)
        self.store = TransactionOffsets(self.broker.make)
        self.fence()
        assert self.load() == {}

    def fence(self) -> None:
        while not self.store.fence(self.consumer, TERM, lambda: None, 5.0):
            pass

    def load(self) -> dict[Partition, int]:
        return dict(self.store.load(self.consumer, TERM, 1.0))

    def begin_commit(self, offset: int = 5) -> Any:
        return self.store.commit(self.consumer, TERM, {A: offset})

    def commit(self, offset: int = 5) -> None:
        wait(self.begin_commit(offset))

    def fails(self, answer: Exception) -> None:
        """A message is produced, and its commit is answered with this."""
        self.broker.answers = [answer]
        self.store.produce(message())
        with pytest.raises(type(answer)):
            self.commit()


@pytest.fixture
def leader() -> Iterator[Leader]:
    made = Leader()
    yield made
    made.store.close()


def wait(commit: Any) -> None:
    while not commit.done(5.0):
        pass


def message(value: bytes = b"v") -> Message:
    return Message("out", value=value)


def test_a_transaction_that_is_committed_is_not_committed_again_though_nobody_had_waited(
    leader: Leader,
) -> None:
    leader.store.produce(message())
    leader.begin_commit()  # and its answer is never looked at
    leader.commit()
    assert (leader.broker.committed, leader.broker.said.count(("produced", 1, b"v"))) == (1, 1)


def test_without_an_answer_the_same_transaction_is_continued(leader: Leader) -> None:
    leader.fails(KafkaAway("no answer"))
    leader.commit()
    assert (leader.broker.made, leader.broker.committed) == (1, 1)
    assert leader.broker.said.count(("produced", 1, b"v")) == 1


def test_a_transaction_whose_producer_was_given_up_after_it_was_asked_for_is_in_doubt(
    leader: Leader,
) -> None:
    leader.fails(KafkaFenced("refused"))
    with pytest.raises(BatchLost, match="not known"):
        leader.commit()
    assert (leader.broker.committed, leader.broker.made) == (0, 1)


def test_a_doubt_is_not_forgotten_by_loading_without_a_fence_and_is_settled_by_one(
    leader: Leader,
) -> None:
    leader.fails(KafkaFenced("refused"))
    leader.load()
    waiting = leader.begin_commit()
    leader.fence()  # before anybody has looked at the answer
    assert leader.broker.committed == 0
    leader.load()
    leader.commit()
    assert (leader.broker.committed, leader.broker.made) == (1, 2)
    with pytest.raises(BatchLost):
        wait(waiting)


def test_a_transaction_that_was_committed_after_all_is_found_by_its_offsets(leader: Leader) -> None:
    leader.fails(KafkaFenced("refused"))
    leader.broker.stored[A] = 5
    leader.fence()
    assert leader.load() == {A: 5}
    leader.store.produce(message(b"next"))
    leader.commit(6)
    assert ("produced", 2, b"v") not in leader.broker.said
    assert ("produced", 2, b"next") in leader.broker.said


@pytest.mark.parametrize(
    ("open_s", "is_late"), [(TRANSACTION_TIMEOUT_S, False), (TRANSACTION_TIMEOUT_S + 0.1, True)]
)
def test_a_transaction_that_was_open_for_too_long_is_given_up(
    leader: Leader, open_s: float, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]

    def slow(*_: Any) -> None:
        now[0] += open_s
        raise KafkaAway("no answer")

    monkeypatch.setattr(Producer, "commit", slow)
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    leader.store.produce(message())
    with pytest.raises(BatchLost if is_late else KafkaAway):
        leader.commit()
    assert (("closed", 1) in leader.broker.said) == is_late
