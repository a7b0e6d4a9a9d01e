"""A transaction whose commit has no answer, is refused, or comes too late: without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq import clock
from leaderq.errors import KafkaFenced
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway, MembershipLost
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


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def consumer(broker: Broker) -> Any:
    return Consumer(broker)


@pytest.fixture
def store(broker: Broker, consumer: Any) -> Any:
    made = TransactionOffsets(broker.make)
    fence(made, consumer)
    assert made.load(consumer, TERM, 1.0) == {}
    yield made
    made.close()


def fence(store: TransactionOffsets, consumer: Any) -> None:
    while not store.fence(consumer, TERM, lambda: None, 5.0):
        pass


def wait(commit: Any) -> None:
    while not commit.done(5.0):
        pass


def commit(store: TransactionOffsets, consumer: Any) -> None:
    wait(store.commit(consumer, TERM, {A: 5}))


def message(value: bytes = b"v") -> Message:
    return Message("out", value=value)


def test_messages_and_offsets_are_committed_together_and_once(
    broker: Broker, store: Any, consumer: Any
) -> None:
    store.produce(message())
    commit(store, consumer)
    assert broker.said[2:] == [
        ("begun", 1),
        ("produced", 1, b"v"),
        ("asked", 1),
        ("committed", 1, {A: 5}),
    ]


def test_a_transaction_that_is_committed_is_not_committed_again_though_nobody_had_waited(
    broker: Broker, store: Any, consumer: Any
) -> None:
    store.produce(message())
    store.commit(consumer, TERM, {A: 5})  # and its answer is never looked at
    commit(store, consumer)
    assert (broker.committed, broker.said.count(("produced", 1, b"v"))) == (1, 1)


def test_without_an_answer_the_same_transaction_is_continued(
    broker: Broker, store: Any, consumer: Any
) -> None:
    broker.answers = [KafkaAway("no answer")]
    store.produce(message())
    with pytest.raises(KafkaAway):
        commit(store, consumer)
    commit(store, consumer)
    assert (broker.made, broker.committed) == (1, 1)
    assert broker.said.count(("produced", 1, b"v")) == 1


def test_a_transaction_whose_producer_was_given_up_after_it_was_asked_for_is_in_doubt(
    broker: Broker, store: Any, consumer: Any
) -> None:
    broker.answers = [KafkaFenced("refused")]
    store.produce(message())
    with pytest.raises(KafkaFenced):
        commit(store, consumer)
    with pytest.raises(BatchLost, match="not known"):
        commit(store, consumer)
    assert (broker.committed, broker.made) == (0, 1)


def test_a_doubt_is_not_forgotten_by_loading_without_a_fence_and_is_settled_by_one(
    broker: Broker, store: Any, consumer: Any
) -> None:
    broker.answers = [KafkaFenced("refused")]
    store.produce(message())
    with pytest.raises(KafkaFenced):
        commit(store, consumer)
    store.load(consumer, TERM, 1.0)
    waiting = store.commit(consumer, TERM, {A: 5})
    fence(store, consumer)  # before anybody has looked at the answer
    assert broker.committed == 0
    store.load(consumer, TERM, 1.0)
    commit(store, consumer)
    assert (broker.committed, broker.made) == (1, 2)
    with pytest.raises(BatchLost):
        wait(waiting)


def test_a_transaction_that_was_committed_after_all_is_found_by_its_offsets(
    broker: Broker, store: Any, consumer: Any
) -> None:
    broker.answers = [KafkaFenced("refused")]
    store.produce(message())
    with pytest.raises(KafkaFenced):
        commit(store, consumer)
    broker.stored[A] = 5
    fence(store, consumer)
    assert store.load(consumer, TERM, 1.0) == {A: 5}
    store.produce(message(b"next"))
    wait(store.commit(consumer, TERM, {A: 6}))
    assert ("produced", 2, b"v") not in broker.said
    assert ("produced", 2, b"next") in broker.said


def test_a_refusal_of_the_group_aborts_and_the_same_messages_are_sent_again(
    broker: Broker, store: Any, consumer: Any
) -> None:
    broker.answers = [MembershipLost("another generation")]
    store.produce(message())
    with pytest.raises(MembershipLost):
        commit(store, consumer)
    commit(store, consumer)
    assert broker.said.count(("produced", 1, b"v")) == 2
    assert (broker.said.count(("aborted", 1)), broker.committed) == (1, 1)


@pytest.mark.parametrize(
    ("open_s", "is_late"), [(TRANSACTION_TIMEOUT_S, False), (TRANSACTION_TIMEOUT_S + 0.1, True)]
)
def test_a_transaction_that_was_open_for_too_long_is_given_up(
    broker: Broker,
    store: Any,
    consumer: Any,
    open_s: float,
    is_late: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, real = [100.0], broker.make

    def slow(*_: Any) -> None:
        now[0] += open_s
        raise KafkaAway("no answer")

    monkeypatch.setattr(Producer, "commit", slow)
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    store.produce(message())
    with pytest.raises(BatchLost if is_late else KafkaAway):
        commit(store, consumer)
    assert (("closed", 1) in broker.said) == is_late
    assert real is not None


def test_what_is_undone_is_not_produced(broker: Broker, store: Any, consumer: Any) -> None:
    store.produce(message(b"undone"))
    store.undo()
    store.produce(message())
    commit(store, consumer)
    assert [said[2] for said in broker.said if said[0] == "produced"] == [b"v"]
