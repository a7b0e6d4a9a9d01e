"""What holds for every batch, every pattern of failures, every policy and shape; then ``order =
"key"``: each key in order, several at a time; one that fails repeats no other.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count, zip_longest
from typing import Any

import pytest
from fake_career import (
    A,
    B,
    Bad,
    C,
    FakeCareer,
    FakeMarks,
    RecordPlace,
    a_handler,
    open_term,
    records,
    where,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderq.errors import KafkaError, Reason
from leaderq.kafka.clients.consumer import BatchLost
from leaderq.kafka.handling.batch_handler import BatchHandler, BatchWork
from leaderq.kafka.handling.chains import InHand, by_records
from leaderq.kafka.handling.context import RecordOrder
from leaderq.kafka.handling.on_error import dead_letter, retry, skip
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.term import OpenTerm

ALWAYS = 10**9
IN_ORDER: list[dict[str, Any]] = [{}, {"batches": "partition"}, {"workers": 2}]
BY_KEY = {"workers": 3, "order": RecordOrder.KEY}


@dataclass
class Case:
    batch: Batch
    fails: dict[RecordPlace, int]
    undecodable: frozenset[RecordPlace]
    undoes: bool
    refused: frozenset[RecordPlace]
    names: bool
    shape: dict[str, Any]

    def chains(self) -> dict[object, list[RecordPlace]]:
        found: dict[object, list[RecordPlace]] = defaultdict(list)
        for rows in self.batch.records.values():
            for record in rows:
                own = record.key or record.offset if self.shape is BY_KEY else None
                found[record.topic_partition, own].append(where(record))
        return found

    def places(self) -> set[RecordPlace]:
        return {place for chain in self.chains().values() for place in chain}

    def hopeless(self, retries: int = ALWAYS - 1) -> set[RecordPlace]:
        return {
            place
            for place in self.places()
            if place in self.undecodable
            or self.fails.get(place, 0) > retries
            or (self.undoes and place in self.refused)
        }


@st.composite
def cases(draw: st.DrawFn, shapes: Sequence[dict[str, Any]] = (*IN_ORDER, BY_KEY)) -> Case:
    keys = st.sampled_from([None, b"a", b"b", b"c"])
    rows: dict[Partition, list[Record]] = {}
    for each in draw(st.lists(st.sampled_from([A, B, C]), min_size=1, unique=True)):
        offsets = sorted(draw(st.sets(st.integers(0, 12), min_size=1, max_size=5)))
        rows[each] = [row.replace(key=draw(keys)) for row in records(each, *offsets)]
    places = [where(record) for each in rows.values() for record in each]
    return Case(
        Batch(rows),
        {place: draw(st.sampled_from([0, 0, 0, 1, 2, ALWAYS])) for place in places},
        frozenset(place for place in places if draw(st.integers(0, 9)) == 0),
        draw(st.booleans()),
        frozenset(place for place in places if draw(st.integers(0, 7)) == 0),
        draw(st.booleans()),
        draw(st.sampled_from(shapes)),
    )


class OneByOne(FakeCareer):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.running: Counter[object] = Counter()

    def handle(self, records: Sequence[Record], term: OpenTerm) -> None:
        (record,) = records
        key = record.topic_partition, record.key or record.offset
        with self._lock:
            self.running[key] += 1
            assert self.running[key] == 1, "two records of one key at a time"
        try:
            super().handle(records, term)
        finally:
            with self._lock:
                self.running[key] -= 1


class Feed:
    """Hands out a log in parts, as a consumer does: another one while ``most`` records may be in
    hand.
    """

    def __init__(self, career: FakeCareer, found: Batch, part: int = 99, most: int = 99) -> None:
        self._career, self._found, self._part, self._most = career, found, part, most
        self._handed: dict[Partition, int] = {}

    def first(self) -> Batch | None:
        self._handed = dict(self._career.committed)
        return self._next()

    def more(self, _wait_s: float, is_enough: Any) -> Batch | None:
        if self._in_hand() + self._part <= self._most and (found := self._next()):
            return found
        threading.Event().wait(0.001)
        return None

    def _in_hand(self) -> int:
        done = self._career.committed
        return sum(
            done.get(record.topic_partition, 0)
            <= record.offset
            < self._handed.get(record.topic_partition, 0)
            for rows in self._found.records.values()
            for record in rows
        )

    def _next(self) -> Batch | None:
        left = [
            row
            for rows in zip_longest(*self._found.records.values())
            for row in rows
            if row and row.offset >= self._handed.get(row.topic_partition, 0)
        ]
        taken: dict[Partition, list[Record]] = defaultdict(list)
        for record in left[: self._part]:
            taken[record.topic_partition].append(record)
        made = Batch(taken)
        self._handed.update(made.ends)
        return made if taken else None


class Run:
    """One handling of a case, watched at every commit; the rest is handed out again after each
    pause, at these calls, and after each commit, of these, that fails. By key, ``part`` records are
    handed out at a time, and others while they are handled.
    """

    def __init__(
        self,
        case: Case,
        on_error: object,
        delivery: str = "at_least_once",
        *,
        pauses_at: frozenset[int] = frozenset(),
        fails_at: frozenset[int] = frozenset(),
        part: int = 0,
    ) -> None:
        self.case = case
        self.passed: set[RecordPlace] = set()
        self.commits_first = delivery == "at_most_once"
        self.career = career = (OneByOne if case.shape is BY_KEY else FakeCareer)(
            fails=case.fails,
            undecodable=case.undecodable,
            undoes=case.undoes,
            names=case.names,
            refused=frozenset() if self.commits_first else case.refused,
        )
        commit, calls, commits = career.commit, count(), count()

        def watched(term: Any, ends: Mapping[Partition, int]) -> None:
            commit(term, ends)
            if not self.commits_first:
                self.check_prefix()

        def pause(_handed: object) -> None:
            if next(calls) in pauses_at:
                self.term.pause(True)

        def fail() -> None:
            if next(commits) in fails_at:
                raise KafkaError("not committed")

        def passed_over(record: Record, *_: object) -> None:
            self.passed.add(where(record))

        career.commit = watched
        career.before_handle, career.before_commit = pause, fail
        feed = Feed(career, case.batch, part or 99, 2 * part)
        hooks: dict[str, Any] = {"on_skipped": passed_over, "on_dead_lettered": passed_over}
        if part and case.shape is BY_KEY:
            hooks["more"] = feed.more
        self.error: Bad | None = None
        self.finished = False
        with closing(
            a_handler(career, on_error, **case.shape, **hooks, delivery=delivery)
        ) as handler:
            self.work_off(handler, feed)

    def work_off(self, handler: BatchHandler, feed: Feed) -> None:
        while self.error is None and (batch := feed.first()) is not None:
            self.term = open_term(7)
            try:
                self.finished = handler.work(batch, self.term)
                assert self.finished or self.term.paused
            except Bad as exc:
                self.error = exc
            except KafkaError:
                self.career.undo()  # as a store does whose term is over

    def check_prefix(self) -> None:
        """Nothing is committed past a record that was neither handled nor passed over."""
        done = set(self.career.effects) | self.passed
        for partition, offset in self.case.places():
            assert offset >= self.career.committed.get(partition, 0) or (partition, offset) in done

    def check_order(self) -> None:
        for chain in self.case.chains().values():
            first = [place for place in dict.fromkeys(self.career.effects) if place in chain]
            assert first == sorted(first), "out of order"

    def check_all(self) -> None:
        assert self.error is None
        assert self.career.committed == self.case.batch.ends
        assert set(self.career.effects) | self.passed == self.case.places()
        assert self.case.hopeless() <= self.passed
        if self.case.undoes:  # each counts once
            assert set(Counter(self.career.effects).values()) <= {1}


RETRIES = retry(1, backoff_s=0, then=skip()), retry(3, backoff_s=0, then=dead_letter())
POLICIES = st.sampled_from([skip(), dead_letter(), *RETRIES])
SOME_TIMES = st.just(frozenset[int]()) | st.frozensets(st.integers(0, 15))


@settings(max_examples=200, deadline=None)
@given(cases())
def test_with_enough_retries_only_the_hopeless_are_passed_over(case):
    total = sum(count for count in case.fails.values() if count < ALWAYS)
    run = Run(case, retry(max(1, total), backoff_s=0, then=skip()))
    assert run.passed == case.hopeless()


@settings(max_examples=200, deadline=None)
@given(cases(), st.sampled_from(["raise", retry(1, backoff_s=0)]))
def test_where_errors_are_raised_nothing_is_passed_over(case, on_error):
    run = Run(case, on_error)
    assert run.passed == set()
    assert (run.error is None) == run.finished
    run.check_prefix()
    run.check_order()
    if case.hopeless():
        assert run.error is not None


@settings(max_examples=200, deadline=None)
@given(cases(IN_ORDER), st.sampled_from(["raise", skip(), dead_letter()]))
def test_at_most_once_has_no_effect_twice_and_commits_each_offset_before_its_record_is_handled(
    case, on_error
):
    run = Run(case, on_error, "at_most_once")
    had = [*run.career.effects, *run.career._pending]
    assert set(Counter(had).values()) <= {1}
    for partition, offset in had:
        assert offset < run.career.committed[partition]
    if run.error is None:
        assert run.finished
        assert run.career.committed == case.batch.ends


@settings(max_examples=800, deadline=None)
@given(cases(), POLICIES, SOME_TIMES, SOME_TIMES, st.sampled_from([0, 1, 3]))
def test_every_record_is_handled_or_passed_over_in_order_however_often_it_pauses_or_a_commit_fails(
    case, on_error, pauses_at, fails_at, part
):
    run = Run(case, on_error, pauses_at=pauses_at, fails_at=fails_at, part=part)
    run.check_all()
    run.check_order()
    if case.undoes and not (pauses_at or fails_at):  # each counts, or was passed over
        assert set(run.career.effects) == case.places() - run.passed


@settings(max_examples=200, deadline=None)
@given(cases([BY_KEY]), POLICIES, st.sampled_from([0, 1, 3]))
def test_by_key_a_record_is_judged_by_itself_and_repeats_no_other(case, on_error, part):
    run = Run(case, on_error, part=part)
    assert set(Counter(run.career.effects).values()) <= {1}, "a neighbour repeated"
    assert run.passed == case.hopeless(on_error.retries)


def keyed(where: Partition, keys: str, first: int = 0) -> list[Record]:
    """Records with these keys; ``-``: without one."""
    return [
        Record(*where, first + at, 0, None if key == "-" else key.encode(), b"")
        for at, key in enumerate(keys)
    ]


def batch(**keys: str) -> Batch:
    named = {"A": A, "B": B, "C": C}
    return Batch({named[name]: keyed(named[name], each) for name, each in keys.items()})


@contextmanager
def by_key(career: FakeCareer, on_error: object = "raise", **more: Any) -> Iterator[Any]:
    with closing(a_handler(career, on_error, **{**BY_KEY, **more})) as handler:
        yield handler


def in_hand(rows: Sequence[Record]) -> InHand:
    hand = InHand()
    hand.add(Batch({}), by_records(rows, RecordOrder.KEY))
    return hand


def begun(hand: InHand) -> Iterator[list[Any]]:
    while chain := hand.begin(lambda _piece: True):
        yield [where(piece.records[0]) for piece in chain.pieces]


def test_a_chain_has_the_records_of_one_key_of_one_partition_and_the_longest_comes_first():
    found = list(begun(in_hand([*keyed(A, "abca-"), *keyed(B, "aa-a")])))
    assert found[0] == [(B, 0), (B, 1), (B, 3)]
    assert found[1] == [(A, 0), (A, 3)]
    assert sorted(found[2:]) == [[(A, 1)], [(A, 2)], [(A, 4)], [(B, 2)]]


def test_what_comes_later_joins_its_chain_and_waits_for_what_came_before():
    hand = in_hand(keyed(A, "ab"))
    first = hand.begin(lambda _piece: True)
    hand.add(Batch({}), by_records(keyed(A, "acccc", first=2), RecordOrder.KEY))
    assert first is not None
    assert [piece.records[0].offset for piece in first.pieces] == [0, 2]
    hand.advance(first.pieces[0])  # offset 2 has come with the second ones
    assert [each[0] for each in begun(hand)] == [(A, 1), (A, 3), (A, 2)]


def test_when_the_term_is_to_end_only_records_in_front_of_a_begun_one_are_handled():
    career, term, last = OneByOne(), open_term(7), threading.Event()

    def handle(rows: Sequence[Record]) -> None:
        offset = rows[0].offset
        if offset == 2:
            term.wind_up(Reason.STEP_DOWN)
            last.set()
        assert last.wait(30)

    career.before_handle = handle
    with by_key(career, order=RecordOrder.NONE) as handler:
        assert not handler.work(batch(A="------"), term)
    assert sorted(career.effects) == [(A, 0), (A, 1), (A, 2)]
    assert career.committed == {A: 3}


def test_a_slow_record_holds_up_its_key_only_until_as_many_as_may_be_are_in_hand():
    career, found = OneByOne(), batch(A="sabcdefghijklmnop" * 2)
    others: list[int] = []
    is_full = threading.Event()

    def handle(rows: Sequence[Record]) -> None:
        (record,) = rows
        assert record.offset < career.committed.get(A, 0) + 6, "more in hand than may be"
        if record.offset == 0:
            assert is_full.wait(30)
            return
        others.append(record.offset)
        if len(others) == 5:
            is_full.set()

    career.before_handle = handle
    feed = Feed(career, found, 3, 6)
    with by_key(career, more=feed.more) as handler:
        while (left := feed.first()) is not None:
            assert handler.work(left, open_term(7))
    assert career.committed == found.ends
    assert sorted(others[:5]) == [1, 2, 3, 4, 5]


def test_after_an_unclean_end_nothing_is_committed_before_the_first_batch_is_done():
    """Else a record that kills would be met at another offset each time, and never be found."""
    career, found = OneByOne(), batch(A="abc")
    more = {"more": lambda *_: None, "marks": FakeMarks(career, {})}
    with by_key(career, skip(), **more) as handler:
        unclean = open_term(8, unclean=True)
        assert BatchWork(handler, found, open_term(7)).slides
        first = BatchWork(handler, found, unclean)
        assert not first.slides
        assert first.run()
        assert career.log[-1] == "commit A=3" and len(career.log) == 4
        assert BatchWork(handler, found, unclean).slides
        assert not BatchWork(handler, found, open_term(9, unclean=True)).slides


def test_when_the_batch_is_lost_what_is_in_hand_is_finished_and_nothing_is_begun(monkeypatch):
    career, stopped, stop = OneByOne(), threading.Event(), BatchWork.stop
    monkeypatch.setattr(BatchWork, "stop", lambda self: [stop(self), stopped.set()])

    def more(*_: Any) -> Batch | None:
        raise BatchLost("moved")

    career.before_handle = lambda _rows: stopped.wait(30) and None
    with by_key(career, more=more) as handler, pytest.raises(BatchLost):
        handler.work(batch(A="abcdefgh"), open_term(7))
    assert len(career.effects) <= 3 and career.committed == {}


def test_where_records_may_kill_the_process_they_are_handled_in_order_of_partitions():
    career = OneByOne()
    with by_key(career, skip(), marks=FakeMarks(career, {A: 2})) as handler:
        assert handler.work(batch(A="ab"), open_term(7))
    assert career.log[:3] == ["mark A0", "handle A0", "commit A=1"]


@pytest.mark.usefixtures("short_pauses")
def test_in_an_outage_all_keys_wait_together_and_none_is_passed_over():
    left = Counter(dict.fromkeys([(A, 0), (A, 1), (B, 0)], 3))
    held: list[str | None] = []

    def fail(rows: Sequence[Record]) -> None:
        left[where(rows[0])] -= 1
        if left[where(rows[0])] >= 0:
            raise ConnectionRefusedError

    career = OneByOne()
    career.before_handle = fail
    with by_key(career, skip(), on_held_up=held.append) as handler:
        assert handler.work(batch(A="ab", B="a"), open_term(7))
    assert len(career.effects) == 3
    assert [each is None for each in held] == [False, False, False, True]
