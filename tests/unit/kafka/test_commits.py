"""Commits on their way: whose outcome is told when, and what is said of a slow one."""

from __future__ import annotations

from contextlib import suppress
from functools import partialmethod
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from terms import open_term

from leaderq.errors import ConfigurationError, KafkaError
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway
from leaderq.kafka.consuming import commits as module
from leaderq.kafka.consuming import consumer_check
from leaderq.kafka.consuming.commits import OffsetCommits
from leaderq.kafka.consuming.consumer_thread import ConsumerThread
from leaderq.kafka.consuming.report import DrainReport
from leaderq.kafka.consuming.term_consumer import ConsumingPlan, JoinGate, TermConsumer
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.kafka.stores.kafka_offsets import KafkaOffsets
from leaderq.kafka.stores.offset_store import DoneAtOnce, OffsetStore

A = Partition("t", 0)
CONSUMER, TERM = object(), object()


class Commit:
    def __init__(self) -> None:
        self.waits: list[float] = []
        self.outcome: bool | Exception = False

    def done(self, wait_s: float) -> bool:
        self.waits.append(wait_s)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Store:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.made: list[Commit] = []
        self.commits = OffsetCommits(self, TERM)

    def commit(self, *asked: Any, what: str = "batch") -> Commit:
        self.asked.append((what, *asked))
        self.made.append(Commit())
        return self.made[-1]

    commit_positions = partialmethod(commit, what="positions")


@pytest.fixture
def store():
    return Store()


def test_a_commit_is_begun_once_and_its_ends_are_told_when_it_is_done(store):
    commits = store.commits
    commits.request({A: 4}, in_hand=False)
    assert isinstance(commits.failure, BatchLost)
    commits.request({A: 5}, in_hand=True)
    for _ in range(2):
        commits.start(CONSUMER)
    assert store.asked == [("batch", CONSUMER, TERM, {A: 5})]
    for may_wait in (True, False):
        assert commits.finish(may_wait=may_wait) is None
    assert store.made[0].waits == [module._LOOK_S, 0.0]
    store.made[0].outcome = True
    assert commits.finish(may_wait=False) == {A: 5}


def test_a_slow_commit_is_told_once_after_three_seconds_and_its_end_too(store, at, caplog):
    assert (module.TELL_AFTER_S, module._LOOK_S) == (3.0, 0.002)
    caplog.set_level("INFO")
    store.commits.request({A: 5}, in_hand=True)
    store.commits.start(CONSUMER)
    at[0] = 103.0
    store.commits.finish(may_wait=False)
    assert caplog.text == ""
    at[0] = 103.1
    for _ in range(2):
        store.commits.finish(may_wait=False)
    store.made[0].outcome = KafkaAway("no answer")
    with pytest.raises(KafkaAway):
        store.commits.finish(may_wait=False)
    store.commits.start(CONSUMER)
    at[0] = 107.0
    store.made[-1].outcome = True
    assert store.commits.finish(may_wait=False) == {A: 5}
    assert [one.getMessage() for one in caplog.records] == [
        "offset commit is slow, the term continues and waits longer_than_s=3",
        "delayed offset commit succeeded",
    ]


def test_a_first_position_is_stored_before_reading_begins_or_it_does_not_begin(store, monkeypatch):
    with pytest.raises(KafkaAway, match="not stored yet"):
        store.commits.commit_positions_now(CONSUMER, {A: 9}, 1.5)
    assert store.asked == [("positions", CONSUMER, TERM, {A: 9})]
    assert store.made[0].waits == [1.5]
    monkeypatch.setattr(Commit, "done", lambda self, wait_s: True)
    store.commits.commit_positions_now(CONSUMER, {A: 9}, 1.5)
    assert not store.commits.is_busy


def test_commits_are_silent_since_the_first_that_has_not_succeeded(store, at):
    commits = store.commits
    commits.request({A: 5}, in_hand=True)
    assert commits.silent_s == 0.0
    store.commits.start(CONSUMER)
    for outcome in (KafkaAway("no answer"), True):
        at[0] += 1.0
        store.commits.start(CONSUMER)
        store.made[-1].outcome = outcome
        with suppress(KafkaAway):
            commits.finish(may_wait=False)
    assert commits.silent_s == 0.0
    for outcome in (KafkaAway("no answer"), True):
        assert commits.silent_s == (at[0] - 102.0)
        commits.commit_positions(CONSUMER, {A: 9})
        at[0] += 1.0
        store.made[-1].outcome = outcome
        with suppress(KafkaAway):
            commits.finish_positions()
    assert commits.silent_s == 0.0


def test_who_waits_for_records_beside_a_commit_is_answered_once():
    """The consumer thread knows the newest request only, so what waits for records is asked again
    after a commit, unless it was answered in front of it.
    """
    thread: Any = ConsumerThread(SimpleNamespace(career="c"))
    thread._thread, thread._gate = SimpleNamespace(is_alive=lambda: True), JoinGate(open_term(7))
    batch, asked = object(), thread._requests

    def more() -> Any:
        return thread.more(0.0, lambda: True)

    assert (more(), more(), asked.qsize()) == (None, None, 1)
    question = asked.get()
    thread._asked()  # a commit, which the consumer thread has answered
    question.answer.put((batch, None))
    assert (more(), asked.qsize()) == (batch, 1)
    assert (more(), asked.qsize()) == (None, 2)
    thread._asked()  # and now another one came first
    assert (more(), asked.qsize()) == (None, 4)


ROW = Record("t", 0, 5, 0, None, b"")


class Client(SimpleNamespace):
    """Answers everything but commits, which hang or fail, unless it is given another answer."""

    joins, is_joining, fails = 1, False, False

    def poll(self, timeout_s: float, most: int) -> dict[Partition, list[Record]]:
        records, self.records = self.records, {}
        return records

    def commit(self, offsets: Any, note: str) -> Any:
        later = KafkaAway("no answer") if self.fails else False
        return SimpleNamespace(done=mock.Mock(side_effect=chain([False] * 3, repeat(later))))

    def __getattr__(self, name: str) -> Any:
        return {
            "existing": lambda: frozenset({A}),
            "assigned": lambda: frozenset({A}),
            "committed": lambda wait_s: {A: 5},
            "topic_ids": dict,
            "end_offsets": lambda wait_s: {A: 6},
            "log_ends": dict,
            "positions": lambda: {A: 6},
            "join": lambda allowed, wait_s: True,
        }.get(name, lambda *_: None)


class Reading(TermConsumer):
    """Of one term; ``clients`` are those that it has made, each with the record, or the
    first only.
    """

    def __init__(
        self,
        kind: type[Client] = Client,
        store: Any = None,
        *,
        start: str | None = "earliest",
        rereads: bool = True,
        **words: Any,
    ) -> None:
        self.clients: list[Client] = []

        def make() -> Any:
            records = {A: [ROW]} if rereads or not self.clients else {}
            self.clients.append(kind(**{"records": records, **words}))
            return self.clients[-1]

        self.reports: Any = mock.Mock(former=DrainReport, group="g")
        store = store or KafkaOffsets()
        plan = ConsumingPlan("address", make, store, "career", self.reports, start=start)
        super().__init__(plan, JoinGate(open_term(7)), None)

    def until_offered(self) -> Batch:
        while (batch := self.offer()) is None:
            self.round()
        return batch

    def commit(self, batch: Batch) -> None:
        self.commits.request(batch.ends, in_hand=True)
        while self.commits.wanted is not None:
            self.round()


@pytest.mark.parametrize(("is_abandoned", "fails"), [(False, False), (False, True), (True, False)])
def test_a_client_of_which_only_commits_hang_is_replaced_after_30_seconds(is_abandoned, fails, at):
    consumer = Reading(fails=fails)
    consumer.until_offered()
    consumer.commits.request({A: 6}, in_hand=True)
    replaced_s: list[float] = []
    began_s = at[0]
    while at[0] < began_s + 70.0:
        at[0] += 0.5
        consumer.round()
        if is_abandoned and len(consumer.clients) == 1:
            consumer.commits.drop()
        if len(consumer.clients) > len(replaced_s) + 1:
            replaced_s.append(at[0] - began_s)
    assert is_abandoned or len(replaced_s) == 2
    assert 30.0 < replaced_s[0] < 33.0


def test_a_stalled_client_is_replaced_at_once_and_a_batch_in_hand_is_committed_with_the_next_one(
    monkeypatch, at
):
    for limit in ("STILL_S", "UNMOVED_S", "POLLS"):
        monkeypatch.setattr(consumer_check, limit, 0)
    stored: list[tuple[int, Any]] = []

    def commit(offsets: Any, note: str) -> DoneAtOnce:
        stored.append((len(consumer.clients), offsets))
        return DoneAtOnce()

    consumer = Reading(rereads=False, end_offsets=lambda _: {A: 9}, commit=commit)
    batch = consumer.until_offered()
    while len(consumer.clients) == 1:
        at[0] += 1.0
        consumer.round()
    assert consumer.reports.stalled.call_args.args == (A, 6, 9)
    assert consumer.offer() is batch
    consumer.commit(batch)
    assert (stored[0], stored[-1]) == ((1, {A: 5}), (2, {A: 6}))


def test_a_client_that_breaks_again_and_again_is_given_up_though_it_works_in_between(at):
    class Breaking(Client):
        def poll(self, timeout_s: float, most: int) -> dict[Partition, list[Record]]:
            if not self.records:
                raise RuntimeError("no such attribute")
            return super().poll(timeout_s, most)

    consumer = Reading(Breaking)
    for count in (4, 7):
        with pytest.raises(KafkaError, match=r"broke 4 times within 60 s: RuntimeError: no such"):
            for _ in range(100):
                at[0] += 0.5
                consumer.round()
        assert len(consumer.clients) == count
        at[0] += 60.0


def test_beside_a_batch_that_was_abandoned_nothing_is_handed_out_and_nothing_of_it_is_committed():
    """Though another one is in hand by now, for a question that nobody has taken back."""
    consumer = Reading()
    batch = consumer.until_offered()
    consumer.positions.drop()
    with pytest.raises(BatchLost):
        consumer.offer_beside()
    consumer.positions.parts.append(batch)
    consumer.request_commit(batch.ends)
    assert (consumer.commits.wanted, type(consumer.commits.failure)) == (None, BatchLost)
    assert consumer.offer() is batch
    consumer.request_commit(batch.ends)
    assert consumer.commits.wanted == batch.ends


@pytest.mark.parametrize("came_with", ["a commit", "an answer"])
def test_what_was_abandoned_before_anybody_took_it_is_not_handled(came_with):
    """As when the term is paused meanwhile, and an operator sets the offsets past it."""
    thread: Any = ConsumerThread(SimpleNamespace(career="c"))
    thread._thread, thread._gate = SimpleNamespace(is_alive=lambda: True), JoinGate(open_term(7))
    consumer = thread._term_consumer = Reading()
    for is_abandoned in (False, True):
        batch = consumer.until_offered()
        if came_with == "a commit":
            thread._next_batch = batch
        else:
            thread.next(open_term(7), 0.0)
            thread._question.answer.put((batch, None))
        if is_abandoned:
            consumer.positions.drop()
        assert thread.next(open_term(7), 0.0) is (None if is_abandoned else batch)
    assert thread._requests.qsize() >= 1


class Elsewhere(OffsetStore):
    word = "elsewhere"
    cannot_close: type[BaseException] = OSError

    def load(self, *_: Any) -> dict[Partition, int]:
        return {A: 5}

    def commit(self, *_: Any) -> DoneAtOnce:
        return DoneAtOnce()

    def close(self) -> None:
        raise self.cannot_close("it cannot be closed")


@pytest.mark.parametrize("error", [OSError, SystemExit])
def test_a_store_that_cannot_be_closed_leaves_no_client_open(caplog, monkeypatch, error):
    monkeypatch.setattr(Elsewhere, "cannot_close", error)
    consumer = Reading(store=Elsewhere())
    consumer.until_offered()
    with mock.patch.object(Client, "close", create=True) as closed:
        consumer.close()
    assert closed.call_count == 1
    assert "career=career store=elsewhere" in caplog.text


def test_lag_tools_are_shown_where_a_leader_is_whose_offsets_are_outside_the_group(at):
    shown: list[tuple[float, Any, str]] = []
    answers = [None, KafkaError("no answer"), None, None]

    def commit(offsets: Any, note: str) -> DoneAtOnce:
        shown.append((at[0] - 100.0, offsets, note))
        if (answer := answers.pop(0)) is not None:
            raise answer
        return DoneAtOnce()

    consumer = Reading(store=Elsewhere(), start=None, commit=commit)
    consumer.until_offered()
    assert consumer.wait_s(is_asked=False) <= 3.0
    for _ in range(140):
        at[0] += 0.5
        consumer.round()
        if at[0] == 110.0:
            consumer.commits.request({A: 6}, in_hand=True)
    assert len(consumer.clients) == 1  # a failure has done no harm
    assert [offsets for _, offsets, _ in shown] == [{A: 5}, {A: 6}, {A: 6}, {A: 6}]
    told, lost, again, whole = (when_s for when_s, _, _ in shown)
    assert (told, again - lost) == (3.0, 3.0)
    assert 60.0 <= whole - told < 63.0
    assert {note for _, _, note in shown} == {"leaderq term 7, for information"}


@pytest.mark.parametrize(
    "answer", [None, [A], {"t-0": 5}, {None: 5}, {A: "5"}, {A: 5.0}, {A: -1}, {A: 2**63}]
)
def test_what_a_store_cannot_have_stored_ends_the_term_and_nothing_is_read(answer, monkeypatch):
    monkeypatch.setattr(Elsewhere, "load", lambda *_: answer)
    consumer = Reading(store=Elsewhere())
    with pytest.raises(ConfigurationError, match=r"load\(\) of the offset store 'elsewhere' ret"):
        consumer.round()
    assert consumer.offer() is None


@pytest.mark.parametrize("where", ["fence", "commit", "commit_positions"])
def test_a_coroutine_that_a_store_returns_does_not_count_as_done(where, monkeypatch, at):
    async def later() -> bool:
        return False

    store = Elsewhere()
    answer: Any = SimpleNamespace(done=lambda _wait_s: later())
    monkeypatch.setattr(store, where, lambda *_: later() if where == "fence" else answer)
    if where == "commit_positions":
        monkeypatch.setattr(store, "load", lambda *_: {})
    consumer = Reading(store=store, start_offsets=lambda _: {A: 5}, close=lambda: None)
    told = r"^(fence|done)\(\) of .*the offset store 'elsewhere'.* returned <coroutine"
    with pytest.raises(ConfigurationError, match=told):
        while True:
            consumer.round()
            at[0] += 0.5
            if consumer.offer() is not None and not consumer.commits.is_busy:
                consumer.commits.request({A: 6}, in_hand=True)


@pytest.mark.parametrize(("last", "level"), [(6, "WARNING"), (2, "INFO")])
def test_where_nothing_is_stored_it_is_said_where_reading_begins_loudly_if_there_are_records(
    last, level, caplog
):
    caplog.set_level("INFO")
    stored: list[Any] = []
    answers = {
        "committed": lambda _: {},
        "start_offsets": lambda _: {A: 2},
        "end_offsets": lambda _: {A: last},
        "commit": lambda offsets, _note: [stored.append(offsets), DoneAtOnce()][1],
    }
    Reading(start=None, records={}, **answers).round()
    (line,) = (one for one in caplog.records if "no offset is stored" in one.getMessage())
    assert (line.levelname, stored) == (level, [{A: 2}])
    assert f"at=earliest records={last - 2} group=g partitions=t-0@2" in line.getMessage()


@pytest.mark.parametrize("where", ["fence", "load", "commit", "commit_positions", "done"])
@pytest.mark.parametrize(
    ("is_ours", "error"),
    [(False, ConnectionError), (False, SystemExit), (True, ConnectionError)],
)
def test_what_a_store_of_the_users_raises_ends_the_term_and_is_not_laid_at_the_clients_door(
    where, is_ours, error, monkeypatch, at
):
    def fail(*_: Any) -> Any:
        raise error("connection refused")

    store = Elsewhere()
    if where == "done":
        monkeypatch.setattr(store, "commit", lambda *_: SimpleNamespace(done=fail))
    else:
        monkeypatch.setattr(store, where, fail)
    if where == "commit_positions":
        monkeypatch.setattr(store, "load", lambda *_: {})
    if is_ours:
        monkeypatch.setattr(Elsewhere, "__module__", "leaderq.kafka.stores.elsewhere")
    consumer = Reading(store=store, start_offsets=lambda _: {A: 5}, close=lambda: None)
    told = "the Kafka client broke" if is_ours else "the offset store 'elsewhere' failed while"
    with pytest.raises(KafkaError, match=f"{told}.* {error.__name__}.*connection refused"):
        while True:
            consumer.round()
            at[0] += 0.5
            if consumer.offer() is not None and not consumer.commits.is_busy:
                consumer.commits.request({A: 6}, in_hand=True)
    assert len(consumer.clients) == (4 if is_ours else 1)


def test_an_operators_offset_is_followed_though_this_leader_has_once_proved_itself_with_it(at):
    """Idle at 5, then five records are handled, then somebody wants them handled again."""
    stored: dict[Partition, int] = {A: 5}

    def commit(offsets: Any, _note: str) -> DoneAtOnce:
        stored.update(offsets)
        return DoneAtOnce()

    known = {"committed": lambda _: dict(stored), "positions": lambda: dict(stored)}
    consumer = Reading(records={}, commit=commit, **known)
    while at[0] < 110.0:
        at[0] += 0.5
        consumer.round()
    (client,) = consumer.clients
    client.records = {A: [ROW]}
    consumer.commit(consumer.until_offered())
    assert stored == consumer.positions.committed == {A: 6}
    stored[A] = 5
    client.joins = 2
    consumer.round()
    assert consumer.positions.committed == {A: 5}
