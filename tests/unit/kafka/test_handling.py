"""How one batch is handled: each case as the list of what is asked of the desk."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from fake_desk import A, B, Bad, FakeDesk, a_batch, a_handler, a_term, records, where

from leaderq.errors import Deposed, KafkaError
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.handling.on_error import PoisonRecord, dead_letter, retry, skip
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.running.stages import UnitAbandoned
from leaderq.term import Reason

ALWAYS = 1000
BY_PARTITION = "partition"


# -- all goes well ---------------------------------------------------------------------------------------------------------


def test_a_batch_is_one_call_and_one_save() -> None:
    desk = FakeDesk()
    assert a_handler(desk).work(a_batch(A=[0, 1], B=[5]), a_term())
    assert desk.log == ["handle A0 A1 B5", "save A=2 B=6"]


def test_the_common_case_looks_at_no_record() -> None:
    class Untouchable(Sequence):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: object) -> Record:
            raise AssertionError("a record was looked at")

    rows = Untouchable()
    for batches in ("merged", BY_PARTITION):
        desk = FakeDesk()
        handed: list[object] = []
        desk.handle = lambda rows, _term, handed=handed: handed.append(rows)  # type: ignore[method-assign,assignment,misc]
        assert a_handler(desk, skip(), batches=batches).work(Batch({A: rows}, {A: 1000}), a_term())
        assert handed == [rows]
        assert desk.saved == {A: 1000}


def test_what_is_saved_is_the_end_of_the_batch_which_may_lie_behind_its_last_record() -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS}, names=True)
    batch = Batch({A: records(A, 0, 1)}, {A: 5, B: 9})
    assert a_handler(desk, "skip").work(batch, a_term())
    assert desk.log == ["handle A0 A1", "save A=1", "save A=5", "save B=9"]


def test_an_empty_batch_is_handed_to_nobody() -> None:
    desk = FakeDesk()
    assert a_handler(desk).work(Batch({}, {A: 3}), a_term())
    assert desk.log == ["save A=3"]


def test_by_partition_is_one_call_each_and_one_save() -> None:
    desk = FakeDesk()
    assert a_handler(desk, batches=BY_PARTITION).work(a_batch(B=[5], A=[0, 1]), a_term())
    assert desk.log == ["handle A0 A1", "handle B5", "save A=2 B=6"]


def test_records_are_decoded_before_they_are_handed_over() -> None:
    desk = FakeDesk(undecodable=frozenset({(B, 99)}))
    seen: list[object] = []
    desk.before_handle = lambda handed: seen.extend(record.value for record in handed)
    assert a_handler(desk).work(a_batch(A=[0]), a_term())
    assert seen == [("decoded", b"v0")]


# -- raise -----------------------------------------------------------------------------------------------------------------


def test_an_error_is_raised_as_it_is_and_nothing_is_saved() -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS})
    with pytest.raises(Bad) as raised:
        a_handler(desk).work(a_batch(A=[0, 1, 2]), a_term())
    assert desk.log == ["handle A0 A1 A2"]
    assert raised.value.__context__ is None


def test_with_a_named_culprit_what_precedes_it_is_saved_and_its_cause_raised() -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS}, names=True)
    with pytest.raises(Bad) as raised:
        a_handler(desk).work(a_batch(A=[0, 1, 2]), a_term())
    assert desk.log == ["handle A0 A1 A2", "save A=1"]
    assert raised.value.__cause__ is None


def test_a_poison_record_without_a_cause_is_raised_itself() -> None:
    desk = FakeDesk()

    def refuse(handed: Sequence[Record]) -> None:
        raise PoisonRecord(handed[0], "bad day")

    desk.before_handle = refuse
    with pytest.raises(PoisonRecord, match="bad day"):
        a_handler(desk).work(a_batch(A=[0, 1]), a_term())


def test_a_poison_record_that_was_not_handed_over_names_no_culprit() -> None:
    desk = FakeDesk()

    def refuse(handed: Sequence[Record]) -> None:
        raise PoisonRecord(records(B, 77)[0]) from Bad("elsewhere")

    desk.before_handle = refuse
    with pytest.raises(Bad, match="elsewhere"):
        a_handler(desk).work(a_batch(A=[0, 1]), a_term())
    assert desk.log == ["handle A0 A1"]


def test_partitions_that_are_done_are_saved_before_the_error_of_another_is_raised() -> None:
    desk = FakeDesk(fails={(B, 5): ALWAYS})
    with pytest.raises(Bad):
        a_handler(desk, batches=BY_PARTITION).work(a_batch(A=[0, 1], B=[5]), a_term())
    assert desk.log == ["handle A0 A1", "handle B5", "save A=2"]


def test_where_effects_are_undone_nothing_is_saved_before_the_error_is_raised() -> None:
    desk = FakeDesk(fails={(B, 5): ALWAYS}, undoes=True, names=True)
    with pytest.raises(Bad):
        a_handler(desk, batches=BY_PARTITION).work(a_batch(A=[0, 1], B=[4, 5]), a_term())
    assert desk.log == ["handle A0 A1", "handle B4 B5", "undo"]
    assert desk.effects == []


@pytest.mark.parametrize("undoes", [False, True])
def test_what_precedes_an_undecodable_value_is_handled_and_saved_before_the_error_is_raised(undoes: bool) -> None:
    desk = FakeDesk(undecodable=frozenset({(A, 2)}), undoes=undoes)
    with pytest.raises(Bad, match="not decodable"):
        a_handler(desk).work(a_batch(A=[0, 1, 2, 3]), a_term())
    assert desk.log == ["handle A0 A1", "save A=2"]


def test_if_what_is_done_cannot_be_saved_that_error_passes_and_the_users_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS}, names=True)

    def away() -> None:
        raise KafkaError("away")

    desk.before_save = away
    with pytest.raises(KafkaError, match="away"):
        a_handler(desk).work(a_batch(A=[0, 1, 2]), a_term())
    assert "Bad: A1; and what was done before it could not be saved" in caplog.text


def test_a_handler_may_empty_the_list_it_was_given() -> None:
    desk = FakeDesk(undoes=True)
    given: list[int] = []

    def empty(handed: Sequence[Record]) -> None:
        given.append(len(handed))
        if len(given) == 1:
            handed.clear()  # type: ignore[attr-defined]
            raise Bad("once")

    desk.before_handle = empty
    assert a_handler(desk, retry(1, backoff_s=0)).work(a_batch(A=[0, 1]), a_term())
    assert given == [2, 2]
    assert desk.effects == [(A, 0), (A, 1)]


# -- retry -----------------------------------------------------------------------------------------------------------------


def test_a_part_that_fails_is_tried_again_as_a_whole() -> None:
    desk = FakeDesk(fails={(A, 1): 2})
    assert a_handler(desk, retry(2, backoff_s=0)).work(a_batch(A=[0, 1, 2]), a_term())
    assert desk.log == ["handle A0 A1 A2"] * 3 + ["save A=3"]


def test_where_effects_are_undone_each_attempt_in_vain_is() -> None:
    desk = FakeDesk(fails={(A, 1): 1}, undoes=True)
    assert a_handler(desk, retry(2, backoff_s=0)).work(a_batch(A=[0, 1, 2]), a_term())
    assert desk.log == ["handle A0 A1 A2", "undo", "handle A0 A1 A2", "save A=3"]
    assert desk.effects == [(A, 0), (A, 1), (A, 2)]


def test_with_a_named_culprit_only_it_is_tried_again_then_the_rest() -> None:
    desk = FakeDesk(fails={(A, 1): 2}, names=True)
    assert a_handler(desk, retry(2, backoff_s=0)).work(a_batch(A=[0, 1, 2, 3]), a_term())
    assert desk.log == ["handle A0 A1 A2 A3", "save A=1", "handle A1", "handle A1", "save A=2", "handle A2 A3", "save A=4"]


def test_where_effects_are_undone_what_precedes_a_named_culprit_is_done_again_first() -> None:
    desk = FakeDesk(fails={(A, 1): 2}, names=True, undoes=True)
    assert a_handler(desk, retry(2, backoff_s=0)).work(a_batch(A=[0, 1, 2]), a_term())
    assert desk.log == [
        "handle A0 A1 A2", "undo", "handle A0", "save A=1", "handle A1", "undo", "handle A1", "save A=2",
        "handle A2", "save A=3",
    ]  # fmt: skip
    assert desk.effects == [(A, 0), (A, 1), (A, 2)]


def test_a_retry_in_vain_raises_the_error() -> None:
    desk = FakeDesk(fails={(A, 0): ALWAYS})
    with pytest.raises(Bad):
        a_handler(desk, retry(2, backoff_s=0)).work(a_batch(A=[0, 1]), a_term())
    assert desk.log == ["handle A0 A1"] * 3


def test_a_term_that_ends_in_a_back_off_is_not_waited_out() -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS}, names=True)
    term = a_term()
    desk.before_handle = lambda handed: term.wind_up(Reason.STEP_DOWN) if len(handed) == 1 else None
    assert not a_handler(desk, retry(2, backoff_s=0, then="skip")).work(a_batch(A=[0, 1, 2]), term)
    assert desk.log == ["handle A0 A1 A2", "save A=1", "handle A1"]


def test_the_last_attempt_of_a_term_is_judged_even_if_the_term_is_ending() -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS})
    term = a_term()
    desk.before_handle = lambda _handed: term.wind_up(Reason.STEP_DOWN)
    with pytest.raises(Bad):
        a_handler(desk).work(a_batch(A=[0, 1]), term)


def test_a_back_off_wakes_up_at_the_end_of_the_term_and_judges_nothing() -> None:
    desk = FakeDesk(fails={(A, 0): ALWAYS})
    term = a_term()
    desk.before_handle = lambda _handed: term.wind_up(Reason.STEP_DOWN)
    assert not a_handler(desk, retry(5, backoff_s=30, then="skip")).work(a_batch(A=[0]), term)
    assert desk.log == ["handle A0"]


# -- skip and dead letters -------------------------------------------------------------------------------------------------


def test_a_named_culprit_is_skipped_and_told(caplog: pytest.LogCaptureFixture) -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS}, names=True)
    told: list[tuple[object, ...]] = []
    handling = a_handler(
        desk, "skip", on_skipped=lambda record, error, attempts: told.append((where(record), str(error), attempts))
    )
    with caplog.at_level(logging.WARNING):
        assert handling.work(a_batch(A=[0, 1, 2]), a_term())
    assert desk.log == ["handle A0 A1 A2", "save A=1", "save A=2", "handle A2", "save A=3"]
    assert told == [((A, 1), "A1", 1)]
    assert "career billing: t-0@1 is skipped after 1 attempt(s): Bad: A1" in caplog.text


def test_a_dead_letter_is_set_aside_before_the_offset_passes_over_its_record() -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS}, names=True)
    told: list[tuple[object, ...]] = []
    handling = a_handler(
        desk,
        retry(1, backoff_s=0, then=dead_letter()),
        on_dead_lettered=lambda record, error, attempts, topic: told.append((where(record), str(error), attempts, topic)),
    )
    assert handling.work(a_batch(A=[0, 1, 2]), a_term())
    assert desk.log == [
        "handle A0 A1 A2", "save A=1", "handle A1", "bury A1 on billing-dead after 2: A1", "save A=2",
        "handle A2", "save A=3",
    ]  # fmt: skip
    assert told == [((A, 1), "A1", 2, "billing-dead")]


def test_a_letter_keeps_the_raw_record() -> None:
    desk = FakeDesk(undecodable=frozenset({(A, 1)}))
    assert a_handler(desk, dead_letter("graveyard")).work(a_batch(A=[0, 1, 2]), a_term())
    assert desk.log == [
        "handle A0",
        "save A=1",
        "bury A1 on graveyard after 1: not decodable",
        "save A=2",
        "handle A2",
        "save A=3",
    ]
    assert desk.letters[0].value == b"v1"


def test_a_culprit_named_by_its_decoded_record_is_found() -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS}, names=True, undecodable=frozenset({(B, 99)}))
    assert a_handler(desk, dead_letter()).work(a_batch(A=[0, 1]), a_term())
    assert desk.letters[0].value == b"v1"


@pytest.mark.parametrize("undoes", [False, True])
def test_an_unknown_culprit_is_looked_for_one_by_one_and_what_follows_goes_together_again(undoes: bool) -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS}, undoes=undoes)
    undo = ["undo"] if undoes else []
    assert a_handler(desk, retry(1, backoff_s=0, then=dead_letter())).work(a_batch(A=[0, 1, 2, 3]), a_term())
    assert desk.log == [
        "handle A0 A1 A2 A3", *undo, "handle A0 A1 A2 A3", *undo,
        "handle A0", "save A=1",
        "handle A1", *undo, "handle A1", *undo, "bury A1 on billing-dead after 4: A1", "save A=2",
        "handle A2 A3", "save A=4",
    ]  # fmt: skip


def test_a_record_that_only_fails_in_company_of_an_outage_is_not_buried() -> None:
    desk = FakeDesk(fails={(A, 0): 3})
    assert a_handler(desk, retry(1, backoff_s=0, then=dead_letter())).work(a_batch(A=[0, 1]), a_term())
    assert desk.letters == []
    assert desk.log == ["handle A0 A1", "handle A0 A1", "handle A0", "handle A0", "save A=1", "handle A1", "save A=2"]


def test_two_culprits_in_one_batch_are_both_found() -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS, (A, 3): ALWAYS}, undoes=True)
    assert a_handler(desk, skip()).work(a_batch(A=[0, 1, 2, 3, 4]), a_term())
    assert desk.effects == [(A, 0), (A, 2), (A, 4)]
    assert desk.saved == {A: 5}


def test_if_a_letter_cannot_be_set_aside_nothing_is_saved_past_its_record() -> None:
    desk = FakeDesk(fails={(A, 1): ALWAYS}, names=True)

    def away() -> None:
        raise KafkaError("too large")

    desk.before_bury = away
    with pytest.raises(KafkaError, match="too large"):
        a_handler(desk, dead_letter()).work(a_batch(A=[0, 1, 2]), a_term())
    assert desk.saved == {A: 1}


def test_a_deposed_leader_buries_nothing() -> None:
    desk = FakeDesk(fails={(A, 0): ALWAYS})
    term = a_term()
    desk.before_handle = lambda _handed: term.wind_up(Reason.FENCED)
    with pytest.raises(Deposed):
        a_handler(desk, dead_letter()).work(a_batch(A=[0]), term)
    assert desk.log == ["handle A0"]


# -- errors that are not about records -------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "error", [Deposed(term=7, reason=Reason.LEASE), KafkaAway("away"), UnitAbandoned(), KeyboardInterrupt(), SystemExit(3)]
)
def test_an_error_that_is_not_about_records_passes_whatever_the_policy(
    error: BaseException, wrapped: bool, workers: int
) -> None:
    desk = FakeDesk()

    def fail(handed: Sequence[Record]) -> None:
        if wrapped:
            raise PoisonRecord(handed[0]) from error
        raise error

    desk.before_handle = fail
    handling = a_handler(desk, retry(3, then=skip()), workers=workers)
    with pytest.raises(type(error)) as raised:
        handling.work(a_batch(A=[0], B=[0]), a_term())
    handling.close()
    assert raised.value is error
    assert desk.saved == {}


def test_a_part_that_was_passed_over_is_not_handled_again_when_a_later_one_is_undone() -> None:
    desk = FakeDesk(fails={(A, 0): 1, (B, 0): 1}, undoes=True)
    handling = a_handler(desk, skip(), batches=BY_PARTITION)
    assert handling.work(a_batch(A=[0], B=[0]), a_term())
    assert desk.log == ["handle A0", "undo", "save A=1", "handle B0", "undo", "save B=1"]
    assert desk.effects == []


def test_partitions_are_keyed_by_topic_and_number() -> None:
    desk = FakeDesk(fails={(A, 0): ALWAYS}, names=True)
    other = Partition("u", 0)
    batch = Batch({A: records(A, 0), other: records(other, 0, 1)}, {A: 1, other: 2})
    desk.undoes = False
    assert a_handler(desk, "skip").work(batch, a_term())
    assert desk.saved == {A: 1, other: 2}
