"""What holds for every batch, every pattern of failures, every policy and shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from fake_career import A, B, Bad, C, FakeCareer, RecordPlace, a_handler, open_term, records, where
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderq.errors import KafkaError
from leaderq.kafka.handling.on_error import dead_letter, retry, skip
from leaderq.kafka.record import Batch, Partition, Record

ALWAYS = 10**9


@dataclass
class Case:
    batch: Batch
    fails: dict[RecordPlace, int]
    undecodable: frozenset[RecordPlace]
    undoes: bool
    refused: frozenset[RecordPlace]
    names: bool
    shape: dict[str, Any]

    def places(self) -> list[RecordPlace]:
        return [where(record) for rows in self.batch.records.values() for record in rows]

    def hopeless(self) -> set[RecordPlace]:
        return {
            place
            for place in self.places()
            if place in self.undecodable
            or self.fails.get(place, 0) >= ALWAYS
            or (self.undoes and place in self.refused)
        }


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows: dict[Partition, list[Record]] = {}
    for partition in draw(st.permutations([A, B, C])):
        offsets = sorted(draw(st.sets(st.integers(0, 12), max_size=5)))
        if offsets:
            rows[partition] = records(partition, *offsets)
    places = [where(record) for each in rows.values() for record in each]
    fails = {place: draw(st.sampled_from([0, 0, 0, 1, 2, ALWAYS])) for place in places}
    undecodable = frozenset(place for place in places if draw(st.integers(0, 9)) == 0)
    shape = draw(st.sampled_from([{}, {"batches": "partition"}, {"workers": 2}]))
    return Case(
        Batch(rows),
        fails,
        undecodable,
        draw(st.booleans()),
        frozenset(place for place in places if draw(st.integers(0, 7)) == 0),
        draw(st.booleans()),
        shape,
    )


class Run:
    """One handling of a case, watched at every commit; the rest is handed out again after each
    pause, at these calls, and after each commit, of these, that fails.
    """

    def __init__(
        self,
        case: Case,
        on_error: object,
        delivery: str = "at_least_once",
        *,
        pauses_at: frozenset[int] = frozenset(),
        fails_at: frozenset[int] = frozenset(),
    ) -> None:
        self.case = case
        self.passed: set[RecordPlace] = set()
        self.career = career = FakeCareer(
            fails=case.fails,
            undecodable=case.undecodable,
            undoes=case.undoes,
            names=case.names,
            refused=case.refused if delivery != "at_most_once" else frozenset(),
        )
        self.commits_first = delivery == "at_most_once"
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

        career.commit = watched
        career.before_handle, career.before_commit = pause, fail
        handler = a_handler(
            career,
            on_error,
            **case.shape,
            delivery=delivery,
            on_skipped=lambda record, *_: self.passed.add(where(record)),
            on_dead_lettered=lambda record, *_: self.passed.add(where(record)),
        )
        self.error: Bad | None = None
        self.finished, left = False, len(pauses_at) + len(fails_at) + 1
        while left and not self.finished and self.error is None:
            self.term, left = open_term(7), left - 1
            try:
                self.finished = handler.work(rest_of(case.batch, career.committed), self.term)
            except Bad as exc:
                self.error = exc
            except KafkaError:
                career.undo()  # as a store does whose term is over
        handler.close()

    def check_prefix(self) -> None:
        """Nothing is committed past a record that was neither handled nor passed over."""
        done = set(self.career.effects) | self.passed
        for partition, offset in self.case.places():
            assert offset >= self.career.committed.get(partition, 0) or (partition, offset) in done

    def check_order(self) -> None:
        """First effects within a partition are in order."""
        for partition in self.case.batch.records:
            first = list(
                dict.fromkeys(offset for each, offset in self.career.effects if each == partition)
            )
            assert first == sorted(first)


POLICIES = st.sampled_from(
    [
        skip(),
        dead_letter(),
        retry(1, backoff_s=0, then=skip()),
        retry(3, backoff_s=0, then=dead_letter()),
    ]
)


@settings(max_examples=400, deadline=None)
@given(cases(), POLICIES)
def test_every_record_is_handled_or_passed_over_in_order_and_the_batch_is_committed_to_its_end(
    case, on_error
):
    run = Run(case, on_error)
    assert run.finished
    assert run.error is None
    assert run.career.committed == case.batch.ends
    run.check_order()
    assert set(run.career.effects) | run.passed == set(case.places())
    assert case.hopeless() <= run.passed
    if case.undoes:  # each counts once, or was passed over
        assert Counter(run.career.effects) == Counter(set(case.places()) - run.passed)


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
@given(cases(), st.sampled_from(["raise", skip(), dead_letter()]))
def test_at_most_once_has_no_effect_twice_and_commits_each_offset_before_its_record_is_handled(
    case, on_error
):
    run = Run(case, on_error, "at_most_once")
    assert all(
        count == 1 for count in Counter([*run.career.effects, *run.career._pending]).values()
    )
    for partition, offset in [*run.career.effects, *run.career._pending]:
        assert offset < run.career.committed[partition]
    if run.error is None:
        assert run.finished
        assert run.career.committed == case.batch.ends


SOME_TIMES = st.frozensets(st.integers(0, 12))


@settings(max_examples=300, deadline=None)
@given(cases(), POLICIES, SOME_TIMES, SOME_TIMES)
def test_however_often_it_is_paused_or_a_commit_fails_nothing_is_left_out(
    case, on_error, pauses_at, fails_at
):
    run = Run(case, on_error, pauses_at=pauses_at, fails_at=fails_at)
    assert run.career.committed == case.batch.ends
    assert set(run.career.effects) | run.passed == set(case.places())
    if case.undoes:
        assert all(times == 1 for times in Counter(run.career.effects).values())


def rest_of(batch: Batch, committed: Mapping[Partition, int]) -> Batch:
    """What is handed out again of a batch of which so much was committed."""
    rows = {
        partition: [record for record in each if record.offset >= committed.get(partition, 0)]
        for partition, each in batch.records.items()
        if committed.get(partition) != batch.ends[partition]
    }
    return Batch(rows)
