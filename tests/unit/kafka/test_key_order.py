"""``order = "key"``: each key in order, several at a time; one that fails repeats no other."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import count, zip_longest
from typing import Any

import pytest
from fake_career import A, B, Bad, C, FakeCareer, FakeMarks, a_handler, open_term, where
from hypothesis import given, settings
from hypothesis import strategies as st
from test_declaration import dressed

from leaderq.errors import ConfigurationError, Deposed, KafkaError, Reason
from leaderq.kafka import KafkaLeaderCareer, dead_letter, retry, skip
from leaderq.kafka.clients.consumer import BatchLost
from leaderq.kafka.handling.batch_handler import BatchWork
from leaderq.kafka.handling.chains import InHand, by_records, ends_of
from leaderq.kafka.handling.context import RecordOrder
from leaderq.kafka.handling.on_error import OnError
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.term import OpenTerm

ALWAYS = 10**9


def keyed(where: Partition, keys: str, first: int = 0) -> list[Record]:
    """Records with these keys; ``-``: without one."""
    return [
        Record(*where, first + at, 0, None if key == "-" else key.encode(), b"")
        for at, key in enumerate(keys)
    ]


def batch(**keys: str) -> Batch:
    return Batch(
        {
            {"A": A, "B": B, "C": C}[name]: keyed({"A": A, "B": B, "C": C}[name], each)
            for name, each in keys.items()
        }
    )


class Calls(FakeCareer):
    """Notes which keys are handled at a time, and that each call has one record."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.at_a_time = self.most_at_a_time = 0
        self.running: Counter[object] = Counter()

    def handle(self, records: Sequence[Record], term: OpenTerm) -> None:
        (record,) = records
        key = record.topic_partition, record.key or record.offset
        with self._lock:
            self.running[key] += 1
            assert self.running[key] == 1, "two records of one key at a time"
            self.most_at_a_time = max(self.most_at_a_time, self.running.total())
        try:
            super().handle(records, term)
        finally:
            with self._lock:
                self.running[key] -= 1


@contextmanager
def by_key(career: FakeCareer, on_error: object = "raise", **more: Any) -> Iterator[Any]:
    more = {"workers": 3, "order": RecordOrder.KEY, **more}
    with closing(a_handler(career, on_error, **more)) as handler:
        yield handler


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(OnError, "pause_s", lambda _self, _times: 0.001)


# -- pure ------------------------------------------------------------------------------------------


def in_hand(order: RecordOrder, *added: Sequence[Record]) -> InHand:
    hand = InHand()
    for rows in added:
        hand.add(Batch({}), by_records(rows, order))
    return hand


def begun(hand: InHand) -> Iterator[list[Any]]:
    """What would be handled, chain by chain."""
    while chain := hand.begin(lambda _piece: True):
        yield [where(piece.records[0]) for piece in chain.pieces]


def test_a_chain_has_the_records_of_one_key_of_one_partition_and_the_longest_comes_first():
    found = list(begun(in_hand(RecordOrder.KEY, [*keyed(A, "abca-"), *keyed(B, "aa-a")])))
    assert found[0] == [(B, 0), (B, 1), (B, 3)]
    assert found[1] == [(A, 0), (A, 3)]
    assert sorted(found[2:]) == [[(A, 1)], [(A, 2)], [(A, 4)], [(B, 2)]]


def test_what_comes_later_joins_its_chain_and_waits_for_what_came_before():
    hand = in_hand(RecordOrder.KEY, keyed(A, "ab"))
    first = hand.begin(lambda _piece: True)
    hand.add(Batch({}), by_records(keyed(A, "acccc", first=2), RecordOrder.KEY))
    assert first is not None
    assert [piece.records[0].offset for piece in first.pieces] == [0, 2]
    hand.advance(first.pieces[0])  # offset 2 has come with the second ones
    assert [each[0] for each in begun(hand)] == [(A, 1), (A, 3), (A, 2)]


def test_when_the_term_is_to_end_only_records_in_front_of_a_begun_one_are_handled():
    career, term, last = Calls(), open_term(7), threading.Event()

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


def test_a_partition_may_be_committed_as_far_as_nothing_is_undone():
    rows, hand = {A: keyed(A, "abcd", first=5), B: keyed(B, "a")}, InHand()
    for found in (Batch(rows), Batch({A: keyed(A, "a", first=12)})):
        hand.add(found, by_records(found.merged(), RecordOrder.NONE))
    pieces = {where(found.pieces[0].records[0]): found.pieces[0] for found in taken(hand)}
    seen: list[Any] = []
    for offset in (6, 7, 5, 8, 12):
        hand.advance(pieces[A, offset])
        done = hand.finished(alone=False)
        seen.append((len(done), ends_of(done)))
        assert hand.finished(alone=True) == done[:1]
        hand.settle(done)
    assert seen == [(0, {}), (0, {}), (3, {A: 8}), (1, {A: 9}), (1, {A: 13})]
    assert hand.uncommitted == 1


def taken(hand: InHand) -> Iterator[Any]:
    while chain := hand.begin(lambda _piece: True):
        yield chain


# -- what holds for every batch --------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[Batch, dict[Any, int]]:
    rows = {
        each: keyed(each, draw(st.text("abc-", min_size=1, max_size=6)), draw(st.integers(0, 3)))
        for each in draw(st.sampled_from([[A], [A, B], [A, B, C]]))
    }
    places = [where(record) for each in rows.values() for record in each]
    fails = {place: draw(st.sampled_from([0, 0, 0, 1, 2, ALWAYS])) for place in places}
    return Batch(rows), fails


def keys_of(found: Batch) -> dict[object, list[Any]]:
    """The places of each key, in order."""
    keys: dict[object, list[Any]] = defaultdict(list)
    for rows in found.records.values():
        for record in rows:
            own = record.offset if record.key is None else record.key
            keys[record.topic_partition, own].append(where(record))
    return keys


def check_all(found: Batch, career: FakeCareer, passed: set[Any]) -> None:
    assert career.committed == found.ends
    assert set(career.effects) | passed == {each for own in keys_of(found).values() for each in own}
    for own in keys_of(found).values():
        first = [each for each in dict.fromkeys(career.effects) if each in own]
        assert first == sorted(first), "out of order"


def committing_prefixes(career: FakeCareer, found: Batch, passed: set[Any]) -> None:
    """Let each commit check that nothing in front of it is undone."""
    commit = career.commit

    def watched(term: Any, ends: Mapping[Partition, int]) -> None:
        commit(term, ends)
        for rows in found.records.values():
            for record in rows:
                if record.offset < career.committed.get(record.topic_partition, 0):
                    assert where(record) in set(career.effects) | passed

    career.commit = watched


class Feed:
    """Hands out a log in parts, as a consumer does: another one while ``most`` records may be in
    hand.
    """

    def __init__(self, career: FakeCareer, found: Batch, part: int, most: int) -> None:
        self._career, self._found, self._part, self._most = career, found, part, most
        self._handed: dict[Partition, int] = {}

    def first(self) -> Batch | None:
        """What is in hand and not committed, once more, or the first part."""
        self._handed = dict(self._career.committed)
        return self._next()

    def more(self, _term: Any, _wait_s: float, is_enough: Any) -> Batch | None:
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


POLICIES = st.sampled_from([skip(), dead_letter(), retry(2, backoff_s=0, then=skip())])


SOME_TIMES = st.just(frozenset[int]()) | st.frozensets(st.integers(0, 15))


@settings(max_examples=350, deadline=None)
@given(cases(), POLICIES, st.booleans(), st.sampled_from([0, 1, 3]), SOME_TIMES, SOME_TIMES)
def test_each_record_is_handled_once_in_the_order_of_its_key_or_passed_over_by_itself(
    case, on_error, names, part, pauses_at, fails_at
):
    """Also where it is paused, or a commit fails, however often; that may repeat records."""
    found, fails = case
    career, passed = Calls(fails=fails, names=names), set[Any]()
    committing_prefixes(career, found, passed)
    calls, commits, term = count(), count(), open_term(7)

    def pause(_handed: object) -> None:
        if next(calls) in pauses_at:
            term.pause(True)

    def fail() -> None:
        if next(commits) in fails_at:
            raise KafkaError("not committed")

    def told(record: Record, *_: object) -> None:
        passed.add(where(record))

    career.before_handle, career.before_commit = pause, fail
    feed = Feed(career, found, part or 99, 2 * part)
    hooks = {"on_skipped": told, "on_dead_lettered": told, "more": feed.more if part else None}
    with by_key(career, on_error, **hooks) as handler:
        while (left := feed.first()) is not None:
            term = open_term(7)
            try:
                is_done = handler.work(left, term)
            except KafkaError:
                continue
            assert is_done or term.paused
    check_all(found, career, passed)
    retries = on_error.retries
    if not (pauses_at or fails_at):
        assert all(times == 1 for times in Counter(career.effects).values()), "a neighbour repeated"
        assert passed == {place for place, times in fails.items() if times > retries}


# -- one by one ------------------------------------------------------------------------------------


def test_as_many_keys_at_a_time_as_there_are_workers():
    career = Calls()
    meeting = threading.Barrier(3)
    career.before_handle = lambda _rows: meeting.wait(30) and None
    with by_key(career) as handler:
        assert handler.work(batch(A="ab", B="c"), open_term(7))
    assert career.most_at_a_time == 3


def test_a_slow_record_holds_up_its_key_only_until_as_many_as_may_be_are_in_hand():
    career, found = Calls(), batch(A="sabcdefghijklmnop" * 2)
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
    career, found = Calls(), batch(A="abc")
    marks: Any = FakeMarks(career, {})
    with by_key(career, skip(), more=lambda *_: None, marks=marks) as handler:
        unclean, clean = open_term(7, unclean=True), open_term(8)
        first = BatchWork(handler, found, unclean)
        assert not first.commits_meanwhile
        assert BatchWork(handler, found, clean).commits_meanwhile
        assert first.run()
        assert career.log[-1] == "commit A=3" and len(career.log) == 4
        assert BatchWork(handler, found, unclean).commits_meanwhile


def test_when_the_batch_is_lost_what_is_in_hand_is_finished_and_nothing_is_begun(monkeypatch):
    career, stopped, stop = Calls(), threading.Event(), BatchWork.stop
    monkeypatch.setattr(BatchWork, "stop", lambda self: [stop(self), stopped.set()])

    def more(*_: Any) -> Batch | None:
        raise BatchLost("moved")

    career.before_handle = lambda _rows: stopped.wait(30) and None
    with by_key(career, more=more) as handler, pytest.raises(BatchLost):
        handler.work(batch(A="abcdefgh"), open_term(7))
    assert len(career.effects) <= 3 and career.committed == {}


def test_an_error_that_is_raised_is_raised_with_the_prefix_committed():
    career = Calls(fails={(A, 2): ALWAYS})
    with by_key(career) as handler, pytest.raises(Bad):
        handler.work(batch(A="abcd", B="aa"), open_term(7))
    assert career.committed == {A: 2, B: 2}
    assert sorted(career.effects) == [(A, 0), (A, 1), (A, 3), (B, 0), (B, 1)]


def test_in_an_outage_all_keys_wait_together_and_none_is_passed_over():
    left = Counter(dict.fromkeys([(A, 0), (A, 1), (B, 0)], 3))
    held: list[str | None] = []

    def fail(rows: Sequence[Record]) -> None:
        left[where(rows[0])] -= 1
        if left[where(rows[0])] >= 0:
            raise ConnectionRefusedError

    career = Calls()
    career.before_handle = fail
    with by_key(career, skip(), on_held_up=held.append) as handler:
        assert handler.work(batch(A="ab", B="a"), open_term(7))
    assert len(career.effects) == 3
    assert [each is None for each in held] == [False, False, False, True]


def test_an_error_not_about_records_ends_the_work_and_commits_nothing():
    career = Calls()

    def fail(rows: Sequence[Record]) -> None:
        if rows[0].key == b"b":
            raise Deposed(term=7, reason=Reason.LEASE)

    career.before_handle = fail
    with by_key(career, skip()) as handler, pytest.raises(Deposed):
        handler.work(batch(A="abc"), open_term(7))
    assert career.committed == {}


def test_where_records_may_kill_the_process_they_are_handled_in_order_of_partitions():
    career = Calls()
    marks: Any = FakeMarks(career, {A: 2})
    with by_key(career, skip(), marks=marks) as handler:
        assert handler.work(batch(A="ab"), open_term(7))
    assert career.log[:3] == ["mark A0", "handle A0", "commit A=1"]


@pytest.mark.parametrize("more", [{"offsets": "external"}, {"delivery": "at_most_once"}])
def test_it_is_refused_where_effects_behind_a_record_would_count_before_it(more):
    attributes = {"topics": "t", "order": "key", "handle_record": lambda *_: None, **more}
    made = dressed(type("Calls", (KafkaLeaderCareer,), attributes))
    with pytest.raises(ConfigurationError, match="order='key' of Calls contradicts"):
        made._declared()
    unknown = dressed(type("Calls", (KafkaLeaderCareer,), {**attributes, "order": "keys"}))
    with pytest.raises(ConfigurationError, match="order='keys' of Calls is not known"):
        unknown._declared()
