"""A transaction whose commit has no answer, is refused, or comes too late: without a broker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum
from itertools import chain, product
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.base import clock
from leaderq.errors import KafkaError, KafkaFenced, MessageTooLarge, UnknownTopic
from leaderq.kafka.clients.consumer import (
    BatchLost,
    EffectRefused,
    KafkaAway,
    MembershipLost,
    MessageInvalid,
)
from leaderq.kafka.clients.producer import TRANSACTION_TIMEOUT_S, Message
from leaderq.kafka.record import Partition
from leaderq.kafka.stores import transaction_offsets as module
from leaderq.kafka.stores.offset_store import StoreContext
from leaderq.kafka.stores.transaction_offsets import TransactionOffsets

A = Partition("t", 0)
TERM: Any = object()
LATE_S = TRANSACTION_TIMEOUT_S + 0.1


class Answer(Enum):
    """What comes of a commit: is it done, what is raised, and what else happens."""

    DONE = "done", None
    DONE_UNHEARD = "done", KafkaAway
    UNHEARD = "continues", KafkaAway
    UNKNOWN_BUT_DONE = "done", BatchLost
    UNKNOWN_DONE_LATER = "when fenced", BatchLost
    UNKNOWN = "continues", BatchLost
    BROKE_BUT_DONE = "done", ValueError
    LOST = "refused", MembershipLost
    LOST_AND_NOT_ABORTED = "not aborted", MembershipLost
    TOO_LARGE = "refused", MessageTooLarge
    EXPIRED = "late", KafkaFenced
    HANGS = "late", KafkaAway
    DEPOSED = "deposed", KafkaFenced
    DONE_AND_DEPOSED = "done, deposed", KafkaFenced


class Broker:
    """Knows what is committed; ``answers`` are those to commits, then all are done."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.fences: list[bool] = []
        self.results: list[bytes] = []
        self.stored: dict[Partition, int] = {}
        self.open: list[bytes] = []
        self.when_fenced: Callable[[], None] | None = None
        self.epoch = self.made = self.asked = self.one_by_one = 0
        self.now_s = 100.0
        self.is_deposed = False
        self.refusal: type[KafkaError] = MessageTooLarge

    def make(self) -> Any:
        self.made += 1
        return Producer(self)

    def allowed(self) -> None:
        if self.is_deposed:
            raise KafkaFenced("the term is over")

    def fence(self) -> int:
        settle, self.when_fenced = self.when_fenced, None
        if settle is not None:
            settle()
        self.open, self.epoch = [], self.epoch + 1
        return self.epoch


class Producer:
    def __init__(self, broker: Broker) -> None:
        self._broker, self._epoch = broker, 0
        self._is_done = False
        self._may_abort = True

    def open(self) -> None: ...

    def send_one_by_one(self) -> None:
        self._broker.one_by_one += 1

    def fence(self, timeout_s: float) -> bool:
        if self._broker.fences and not self._broker.fences.pop(0):
            return False
        self._epoch = self._broker.fence()
        return True

    def _check(self) -> None:
        if self._epoch != self._broker.epoch:
            raise KafkaFenced("another producer was fenced in")

    def begin(self) -> None:
        self._check()
        assert not self._broker.open
        self._is_done = False

    def produce(self, message: Any) -> None:
        self._check()
        self._broker.open.append(message.value)
        if message.value == b"bad":
            raise self._broker.refusal("not this one")

    def commit(self, offsets: Any, group: Any, timeout_s: float) -> None:
        broker = self._broker
        self._check()
        if self._is_done:
            return
        broker.asked += 1
        answer = broker.answers.pop(0) if broker.answers else Answer.DONE
        happens, error = answer.value
        messages = list(broker.open)

        def done() -> None:
            self._is_done = True
            broker.results += messages
            broker.stored.update(offsets)
            broker.open = []

        if happens.startswith("done"):
            done()
        elif happens == "when fenced":
            broker.when_fenced = done
        elif happens == "late":
            broker.now_s += LATE_S
            broker.fence()
        self._may_abort = happens != "not aborted"
        if happens.endswith("deposed"):
            broker.is_deposed = True
            broker.fence()
        if error is not None:
            raise error(answer.name)

    def abort(self, timeout_s: float) -> None:
        self._check()
        if not self._may_abort:
            raise KafkaError("not aborted")
        self._broker.open = []

    def close(self) -> None: ...


class Executor:
    """Does what a :class:`SerialExecutor` does, without a thread: at once, or at the last moment,
    which is when somebody looks at it or at what came after it.
    """

    is_lazy = False

    def __init__(self, name: str) -> None:
        self._works: list[tuple[Future[None], Callable[[], None]]] = []

    def submit(self, work: Callable[[], None]) -> Any:
        future: Future[None] = Future()
        self._works.append((future, work))
        if not self.is_lazy:
            self._run()

        def done(wait_s: float) -> bool:
            self._run()
            return future.result() is None

        return SimpleNamespace(done=done)

    def _run(self) -> None:
        while self._works:
            future, work = self._works.pop(0)
            try:
                future.set_result(work())
            except Exception as exc:
                future.set_exception(exc)

    def close(self) -> None: ...


class Leader:
    def __init__(self, broker: Broker | None = None) -> None:
        self.broker = broker or Broker()
        self.broker.is_deposed = False
        self.consumer: Any = SimpleNamespace(
            join=lambda allowed, timeout_s: True,
            committed=lambda timeout_s: dict(self.broker.stored),
            group_metadata=lambda: "group",
        )
        self.store: Any = TransactionOffsets()
        self.store.attach(StoreContext("c", "/", make_producer=self.broker.make))
        self.begin()

    def begin(self) -> int:
        while True:
            try:
                if self.store.fence(self.consumer, TERM, self.broker.allowed, 5.0):
                    return self.load()
            except KafkaAway:
                pass

    def load(self) -> int:
        return self.store.load(self.consumer, TERM, 1.0).get(A, 0)

    def begin_commit(self, offset: int = 1) -> Any:
        return self.store.commit(self.consumer, TERM, {A: offset})

    def commit(self, offset: int = 1) -> None:
        assert self.begin_commit(offset).done(5.0)


@pytest.fixture(autouse=True)
def no_threads(monkeypatch):
    monkeypatch.setattr(module, "SerialExecutor", Executor)


@pytest.fixture
def leader(monkeypatch):
    made = Leader()
    monkeypatch.setattr(clock, "now_s", lambda: made.broker.now_s)
    yield made
    made.store.close()


def message(value: bytes = b"v") -> Message:
    return Message("out", value=value)


class Reaction(Enum):
    """What the reader of a term does when its commit was not answered."""

    ASKS_AGAIN = "asks again"
    NEVER_LOOKS = "asks again, and never looks at the first answer"
    NEW_CONSUMER = "fences and loads with a new consumer first"
    LOADS = "joins again and loads, and does not fence"


WANTED = [b"0", b"1"]


def handle_all(broker: Broker, reaction: Reaction) -> None:
    leader = Leader(broker)
    while (at := leader.load()) < len(WANTED):
        leader.store.undo()
        leader.store.add([message(WANTED[at])])
        try:
            try:
                commit_until_known(leader, at + 1, reaction)
            except BatchLost:
                leader.begin()
        except KafkaFenced:
            leader.store.close()
            leader = Leader(broker)
        except MessageTooLarge:
            pass
    leader.store.close()


def commit_until_known(leader: Leader, offset: int, reaction: Reaction) -> None:
    while True:
        commit = leader.begin_commit(offset)
        if reaction is Reaction.NEVER_LOOKS:
            commit = leader.begin_commit(offset)
        try:
            assert commit.done(5.0)
        except (KafkaAway, ValueError) as exc:
            if reaction is Reaction.NEW_CONSUMER or isinstance(exc, ValueError):
                leader.begin()
            elif reaction is Reaction.LOADS:
                leader.load()
        except MembershipLost:
            leader.load()
        else:
            return


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("reaction", Reaction)
def test_whatever_the_answers_and_their_order_each_message_is_committed_once(
    reaction, is_lazy, monkeypatch
):
    monkeypatch.setattr(Executor, "is_lazy", is_lazy)
    now: list[Broker] = []
    monkeypatch.setattr(clock, "now_s", lambda: now[-1].now_s)
    slow = [True, False, False]
    quick_fences = ((answers, []) for answers in product(Answer, repeat=3))
    slow_fences = ((answers, slow) for answers in product(Answer, repeat=2))
    for answers, fences in chain(quick_fences, slow_fences):
        now[:] = [broker := Broker()]
        broker.answers, broker.fences = list(answers), list(fences)
        handle_all(broker, reaction)
        assert (broker.results, broker.stored) == (WANTED, {A: 2}), (answers, fences)


def test_a_doubt_is_not_forgotten_by_loading_without_a_fence_and_is_settled_by_one(leader):
    leader.broker.answers = [Answer.UNKNOWN_DONE_LATER]
    leader.store.add([message()])
    leader.begin_commit()  # and its answer is never looked at
    leader.load()
    with pytest.raises(BatchLost, match="not known"):
        leader.commit()
    leader.begin()
    assert (leader.broker.results, leader.load()) == ([b"v"], 1)


@pytest.mark.parametrize(("open_s", "is_late"), [(TRANSACTION_TIMEOUT_S, False), (LATE_S, True)])
def test_a_transaction_that_was_open_for_too_long_is_given_up(leader, open_s, is_late, monkeypatch):
    monkeypatch.setitem(globals(), "LATE_S", open_s)
    leader.broker.answers = [Answer.HANGS]
    leader.store.add([message()])
    with pytest.raises(BatchLost if is_late else KafkaAway):
        leader.commit()


@pytest.mark.parametrize("error", [MessageTooLarge, UnknownTopic, MessageInvalid])
def test_a_message_that_the_client_does_not_take_is_an_effect_refused_and_nothing_is_stored(
    leader, error
):
    leader.broker.refusal = error
    for value in (b"v", b"bad"):
        leader.store.add([message(value)])
    with pytest.raises(EffectRefused, match="not this one") as refused:
        leader.commit()
    assert type(refused.value.error) is error
    leader.store.undo()
    leader.store.add([message()])
    leader.commit()
    made = 1 if error is UnknownTopic else 3  # another one sends it one by one, and another goes on
    assert (leader.broker.made, leader.broker.results) == (made, [b"v"])


@pytest.mark.parametrize("times", [1, 2])
def test_what_the_broker_refuses_is_sent_again_one_by_one_and_by_a_new_producer_each_time(
    leader, times
):
    """The former one has lost its place in the sequence of messages."""
    refusal = "refused", lambda _: EffectRefused(MessageInvalid("the time of it"))
    leader.broker.answers = [SimpleNamespace(value=refusal, name="refused")] * times
    leader.store.add([message(b"odd")])
    if times == 2:
        with pytest.raises(EffectRefused):
            leader.commit()
        leader.store.undo()
        leader.store.add([message()])
        leader.commit()
        assert (leader.broker.made, leader.broker.results) == (3, [b"v"])
    else:
        leader.commit()
        leader.store.add([message()])
        leader.commit(2)
        assert (leader.broker.made, leader.broker.results) == (3, [b"odd", b"v"])
    assert leader.broker.one_by_one == 1
