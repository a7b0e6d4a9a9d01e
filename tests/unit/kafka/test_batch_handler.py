"""How one batch is handled: each case as the list of what is asked of the career."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from fake_career import A, Bad, FakeCareer, a_batch, a_handler, a_term, where

from leaderq.errors import Deposed, KafkaError
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.handling.on_error import PoisonRecord, dead_letter, retry, skip
from leaderq.kafka.record import Batch, Record
from leaderq.running import UnitAbandoned
from leaderq.term import Reason

ALWAYS = 1000
BY_PARTITION = "partition"


# -- all goes well


def test_a_batch_is_one_call_and_one_commit() -> None:
    career = FakeCareer()
    assert a_handler(career).work(a_batch(A=[0, 1], B=[5]), a_term())
    assert career.log == ["handle A0 A1 B5", "commit A=2 B=6"]


def test_the_common_case_looks_at_no_record() -> None:
    class Untouchable(Sequence):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: object) -> Record:
            raise AssertionError("a record was looked at")

    rows = Untouchable()
    for batches in ("merged", BY_PARTITION):
        career = FakeCareer()
        handed: list[object] = []
        career.handle = lambda rows, _term, handed=handed: handed.append(rows)  # type: ignore[method-assign,assignment,misc]
        assert a_handler(career, skip(), batches=batches).work(
            Batch({A: rows}, {A: 1000}), a_term()
        )
        assert handed == [rows]
        assert career.committed == {A: 1000}


def test_an_empty_batch_is_handed_to_nobody() -> None:
    career = FakeCareer()
    assert a_handler(career).work(Batch({}, {A: 3}), a_term())
    assert career.log == ["commit A=3"]


def test_by_partition_is_one_call_each_and_one_commit() -> None:
    career = FakeCareer()
    assert a_handler(career, batches=BY_PARTITION).work(a_batch(B=[5], A=[0, 1]), a_term())
    assert career.log == ["handle A0 A1", "handle B5", "commit A=2 B=6"]


# -- raise


def test_an_error_is_raised_as_it_is_and_nothing_is_committed() -> None:
    career = FakeCareer(fails={(A, 1): ALWAYS})
    with pytest.raises(Bad) as raised:
        a_handler(career).work(a_batch(A=[0, 1, 2]), a_term())
    assert career.log == ["handle A0 A1 A2"]
    assert raised.value.__context__ is None


@pytest.mark.parametrize("undoes", [False, True])
def test_records_before_an_undecodable_value_are_handled_and_committed_before_the_error(
    undoes: bool,
) -> None:
    career = FakeCareer(undecodable=frozenset({(A, 2)}), undoes=undoes)
    with pytest.raises(Bad, match="not decodable"):
        a_handler(career).work(a_batch(A=[0, 1, 2, 3]), a_term())
    assert career.log == ["handle A0 A1", "commit A=2"]


# -- retry


def test_with_a_named_culprit_only_it_is_tried_again_then_the_rest() -> None:
    career = FakeCareer(fails={(A, 1): 2}, names=True)
    assert a_handler(career, retry(2, backoff_s=0)).work(a_batch(A=[0, 1, 2, 3]), a_term())
    assert career.log == [
        "handle A0 A1 A2 A3",
        "commit A=1",
        "handle A1",
        "handle A1",
        "commit A=2",
        "handle A2 A3",
        "commit A=4",
    ]


# -- skip and dead letters


def test_a_named_culprit_is_skipped_and_told(caplog: pytest.LogCaptureFixture) -> None:
    career = FakeCareer(fails={(A, 1): ALWAYS}, names=True)
    told: list[tuple[object, ...]] = []
    handler = a_handler(
        career,
        "skip",
        on_skipped=lambda record, error, attempts: told.append(
            (where(record), str(error), attempts)
        ),
    )
    with caplog.at_level(logging.WARNING):
        assert handler.work(a_batch(A=[0, 1, 2]), a_term())
    assert career.log == ["handle A0 A1 A2", "commit A=1", "commit A=2", "handle A2", "commit A=3"]
    assert told == [((A, 1), "A1", 1)]
    assert "record skipped career=billing records=t-0@1 attempts=1 error=Bad: A1" in caplog.text


def test_a_dead_letter_is_set_aside_before_the_offset_passes_over_its_record() -> None:
    career = FakeCareer(fails={(A, 1): ALWAYS}, names=True)
    told: list[tuple[object, ...]] = []
    handler = a_handler(
        career,
        retry(1, backoff_s=0, then=dead_letter()),
        on_dead_lettered=lambda record, error, attempts, topic: told.append(
            (where(record), str(error), attempts, topic)
        ),
    )
    assert handler.work(a_batch(A=[0, 1, 2]), a_term())
    assert career.log == [
        "handle A0 A1 A2", "commit A=1", "handle A1", "dead letter A1 on billing-dead after 2: A1",
        "commit A=2", "handle A2", "commit A=3",
    ]  # fmt: skip
    assert told == [((A, 1), "A1", 2, "billing-dead")]


@pytest.mark.parametrize("undoes", [False, True])
def test_an_unknown_culprit_is_looked_for_one_by_one_and_what_follows_goes_together_again(
    undoes: bool,
) -> None:
    career = FakeCareer(fails={(A, 1): ALWAYS}, undoes=undoes)
    undo = ["undo"] if undoes else []
    assert a_handler(career, retry(1, backoff_s=0, then=dead_letter())).work(
        a_batch(A=[0, 1, 2, 3]), a_term()
    )
    assert career.log == [
        "handle A0 A1 A2 A3", *undo, "handle A0 A1 A2 A3", *undo,
        "handle A0", "commit A=1",
        "handle A1", *undo, "handle A1", *undo, "dead letter A1 on billing-dead after 4: A1",
        "commit A=2", "handle A2 A3", "commit A=4",
    ]  # fmt: skip


def test_a_record_that_only_fails_in_company_of_an_outage_is_not_set_aside() -> None:
    career = FakeCareer(fails={(A, 0): 3})
    assert a_handler(career, retry(1, backoff_s=0, then=dead_letter())).work(
        a_batch(A=[0, 1]), a_term()
    )
    assert career.letters == []
    assert career.log == [
        "handle A0 A1",
        "handle A0 A1",
        "handle A0",
        "handle A0",
        "commit A=1",
        "handle A1",
        "commit A=2",
    ]


def test_if_a_letter_cannot_be_set_aside_nothing_is_committed_past_its_record() -> None:
    career = FakeCareer(fails={(A, 1): ALWAYS}, names=True)

    def away() -> None:
        raise KafkaError("too large")

    career.before_dead_letter = away
    with pytest.raises(KafkaError, match="too large"):
        a_handler(career, dead_letter()).work(a_batch(A=[0, 1, 2]), a_term())
    assert career.committed == {A: 1}


def test_a_deposed_leader_buries_nothing() -> None:
    career = FakeCareer(fails={(A, 0): ALWAYS})
    term = a_term()
    career.before_handle = lambda _handed: term.wind_up(Reason.FENCED)
    with pytest.raises(Deposed):
        a_handler(career, dead_letter()).work(a_batch(A=[0]), term)
    assert career.log == ["handle A0"]


# -- errors that are not about records


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        Deposed(term=7, reason=Reason.LEASE),
        KafkaAway("away"),
        UnitAbandoned(),
        KeyboardInterrupt(),
        SystemExit(3),
    ],
)
def test_an_error_that_is_not_about_records_passes_whatever_the_policy(
    error: BaseException, wrapped: bool, workers: int
) -> None:
    career = FakeCareer()

    def fail(handed: Sequence[Record]) -> None:
        if wrapped:
            raise PoisonRecord(handed[0]) from error
        raise error

    career.before_handle = fail
    handler = a_handler(career, retry(3, then=skip()), workers=workers)
    with pytest.raises(type(error)) as raised:
        handler.work(a_batch(A=[0], B=[0]), a_term())
    handler.close()
    assert raised.value is error
    assert career.committed == {}
