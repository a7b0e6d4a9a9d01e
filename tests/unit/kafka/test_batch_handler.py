"""How one batch is handled: each case as the list of what is asked of the career; threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any
from unittest import mock

import pytest
from fake_career import (
    A,
    B,
    Bad,
    C,
    FakeCareer,
    FakeMarks,
    a_batch,
    a_handler,
    failing_at,
    open_term,
    records,
    sorted_until_committed,
)
from test_handling_laws import ALWAYS, BY_KEY

from leaderq.errors import AlreadyStored, Deposed, KafkaError
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.handling.calls import ThreadWorkers
from leaderq.kafka.handling.on_error import dead_letter, retry, skip
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.kafka.stores.handle_call import take_effect
from leaderq.running import UnitAbandoned
from leaderq.running.stages import AbandonableUnit
from leaderq.term import Reason

BY_PARTITION = "partition"
LETTERS = retry(1, backoff_s=0, then=dead_letter())

Case = tuple[dict[str, Any], object, dict[str, Any], dict[str, Sequence[int]], list[str]]
"""The career, ``on_error``, what else its handler is told, the batch, and what is asked of the
career. ``careful``: up to which offsets, by partition; ``deaths``: of processes, by record;
``raises``: what the error says.
"""
# fmt: off
CASES: dict[str, Case] = {
    "with a named culprit only it is tried again, then the rest": (
        {"fails": {(A, 1): 2}, "names": True}, retry(2, backoff_s=0), {}, {"A": [0, 1, 2, 3]},
        ["handle A0 A1 A2 A3", "commit A=1", "handle A1", "handle A1",
         "handle A2 A3", "commit A=4"],
    ),
    "an unknown culprit is looked for one by one, and what follows goes together again": (
        {"fails": {(A, 1): ALWAYS}}, LETTERS, {}, {"A": [0, 1, 2, 3]},
        ["handle A0 A1 A2 A3", "handle A0 A1 A2 A3", "handle A0",
         "handle A1", "commit A=1", "handle A1", "dead letter A1 on billing-dead after 4: A1",
         "commit A=2", "handle A2 A3", "commit A=4"],
    ),
    "a careful partition is handled one by one, each record marked before": (
        {}, skip(), {"careful": {A: 2}}, {"A": [0, 1, 2, 3], "B": [5]},
        ["mark A0", "handle A0", "commit A=1", "unmark A0",
         "mark A1", "handle A1", "commit A=2", "unmark A1",
         "handle A2 A3", "handle B5", "commit A=4 B=6"],
    ),
    "marks are not used where errors are raised": (
        {}, "raise", {"careful": {A: 9}}, {"A": [0, 1]}, ["handle A0 A1", "commit A=2"],
    ),
    "with workers only the rest of the partition that failed is handled again": (
        {"fails": {(B, 6): 2}, "names": True}, retry(2, backoff_s=0), {"workers": 3},
        {"A": [0, 1], "B": [5, 6, 7]},
        ["handle A0 A1", "handle B5 B6 B7", "commit A=2 B=6", "handle B6", "handle B6",
         "handle B7", "commit B=8"],
    ),
    "a record whose effect the commit refuses is found by halves, and judged": (
        {"refused": frozenset({(A, 1)}), "undoes": True}, dead_letter(), {}, {"A": [0, 1, 2, 3]},
        ["handle A0 A1 A2 A3", "refuse A=4", "undo", "handle A0 A1", "handle A2 A3",
         "refuse A=4", "undo", "refuse A=2", "undo", "handle A0", "handle A1", "refuse A=4", "undo",
         "commit A=1", "refuse A=2", "undo",
         "dead letter A1 on billing-dead after 1: refused", "commit A=2", "commit A=4"],
    ),
    "a marked record whose effect is refused is unmarked once it is passed over": (
        {"refused": frozenset({(A, 0)}), "undoes": True}, skip(), {"careful": {A: 1}},
        {"A": [0, 1]},
        ["mark A0", "handle A0", "refuse A=1", "undo", "skipped A0 after 1: refused",
         "commit A=1", "unmark A0",
         "handle A1", "commit A=2"],
    ),
    "an error is raised as it is and nothing is committed": (
        {"fails": {(A, 1): ALWAYS}}, "raise", {"raises": "A1"}, {"A": [0, 1, 2]},
        ["handle A0 A1 A2"],
    ),
    "records before an undecodable value are handled and committed before the error": (
        {"undecodable": frozenset({(A, 2)})}, "raise", {"raises": "not decodable"},
        {"A": [0, 1, 2, 3]}, ["handle A0 A1", "commit A=2"],
    ),
    "a record that took too many processes is passed over unhandled": (
        {}, dead_letter(deaths=2), {"careful": {A: 3}, "deaths": {(A, 0): 1, (A, 1): 2}},
        {"A": [0, 1, 2]},
        ["mark A0", "handle A0", "commit A=1", "unmark A0",
         "mark A1", "dead letter A1 on billing-dead after 2: "
         "the process died 2 times while handling this record", "commit A=2", "unmark A1",
         "mark A2", "handle A2", "commit A=3", "unmark A2"],
    ),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_what_is_asked_of_a_career(name):
    words, on_error, more, batch, log = CASES[name]
    career, more = FakeCareer(**words), dict(more)
    if "careful" in more:
        more["marks"] = FakeMarks(career, more.pop("careful"), more.pop("deaths", None))
    error = more.pop("raises", None)
    set_aside: list[object] = []

    def skipped(record: Record, error: object, attempts: int) -> None:
        career.log.append(f"skipped A{record.offset} after {attempts}: {error}")

    hooks = {"on_skipped": skipped, "on_dead_lettered": lambda *told: set_aside.append(told)}
    with closing(a_handler(career, on_error, **hooks, **more)) as handler:
        if error is None:
            assert handler.work(a_batch(**batch), open_term(7))
        else:
            with pytest.raises(Bad, match=error) as raised:
                handler.work(a_batch(**batch), open_term(7))
            assert raised.value.__context__ is None
    assert (sorted_until_committed(career.log) if "workers" in more else career.log) == log
    assert len(set_aside) == len(career.letters)


def test_the_common_case_looks_at_no_record_but_the_first_and_the_last():
    class Untouchable(Sequence):
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: object) -> Record:
            assert index in (0, -1), "a record was looked at"
            return Record("t", 0, 999 if index else 0, 5, b"k", b"v")

    rows = Untouchable()
    for batches in ("merged", BY_PARTITION):
        career = FakeCareer()
        handed: list[object] = []
        career.handle = lambda rows, _term, handed=handed: handed.append(rows)
        handler = a_handler(career, skip(), batches=batches)
        assert handler.work(Batch({A: rows}), open_term(7))
        assert handed == [rows]
        assert career.committed == {A: 1000}


def test_the_refusal_is_raised_as_it_is_and_names_its_record(caplog):
    career = FakeCareer(refused=frozenset({(A, 2)}), undoes=True)
    with pytest.raises(Bad, match="refused"):
        a_handler(career).work(a_batch(A=[0, 1, 2, 3]), open_term(7))
    assert (career.committed, career.effects) == ({A: 2}, [(A, 0), (A, 1)])
    assert "raising the error career=billing records=t-0@2 key=None let_pass=" in caplog.text


def test_a_letter_that_is_refused_is_no_records_fault():
    career = FakeCareer(fails={(A, 0): ALWAYS}, undoes=True)

    def send(*_: object) -> None:
        take_effect(partial(career.add, (A, 0)))

    career.refused = frozenset({(A, 0)})
    career.send_dead_letter = send
    with pytest.raises(Bad, match="refused"):
        a_handler(career, dead_letter()).work(a_batch(A=[0]), open_term(7))
    assert career.committed == {}


def test_if_a_letter_cannot_be_set_aside_nothing_is_committed_past_its_record():
    career = FakeCareer(fails={(A, 1): ALWAYS}, names=True)
    career.send_dead_letter = mock.Mock(side_effect=KafkaError("too large"))
    with pytest.raises(KafkaError, match="too large"):
        a_handler(career, dead_letter()).work(a_batch(A=[0, 1, 2]), open_term(7))
    assert career.committed == {A: 1}


@pytest.mark.parametrize("undoes", [False, True])
@pytest.mark.parametrize("pauses", [False, True])
def test_between_parts_a_term_that_ends_or_pauses_is_noticed_and_what_is_done_is_committed(
    pauses, undoes
):
    career = FakeCareer(undoes=undoes)
    term = open_term(7)
    end = partial(term.pause, True) if pauses else partial(term.wind_up, Reason.STEP_DOWN)
    career.before_handle = lambda _handed: end()
    assert not a_handler(career, batches=BY_PARTITION).work(a_batch(A=[0, 1], B=[5]), term)
    assert career.log == ["handle A0 A1", "commit A=2"]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("on_error", ["raise", skip(), LETTERS])
@pytest.mark.parametrize(
    ("stored", "handled"),
    [({A: 2, B: 7}, []), ({A: 2}, [(B, 5), (B, 6)]), ({B: 6}, [(A, 0), (A, 1), (B, 6)])],
)
def test_what_is_stored_counts_as_handled_and_the_rest_goes_on(
    stored, handled, on_error, workers, wraps
):
    career = FakeCareer()
    passed_over: list[object] = []

    def refuse(rows: Sequence[Record]) -> None:
        for row in rows:
            if row.offset < (end := stored.get(row.topic_partition, 0)):
                refused = AlreadyStored(row.topic_partition, stored=end, first=row.offset)
                if wraps:
                    raise KeyError("as the user calls it") from refused
                raise refused

    career.before_handle = refuse
    told = {"on_skipped": lambda *told: passed_over.append(told)}
    with closing(a_handler(career, on_error, workers=workers, **told)) as handler:
        assert handler.work(a_batch(A=[0, 1], B=[5, 6]), open_term(7))
    assert sorted(career.effects) == handled
    assert career.committed == {A: 2, B: 7}
    assert passed_over == career.letters == []


def test_already_stored_about_no_record_in_hand_is_judged_as_any_error():
    career = FakeCareer()
    career.before_handle = failing_at([AlreadyStored(C, stored=9, first=0)])
    with pytest.raises(AlreadyStored):
        a_handler(career).work(a_batch(A=[0, 1]), open_term(7))


@pytest.mark.parametrize("more", [{}, {"workers": 2}, BY_KEY], ids=str)
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "error", [Deposed(term=7, reason=Reason.LEASE), KafkaAway("away"), UnitAbandoned()]
)
def test_an_error_that_is_not_about_records_passes_whatever_the_policy(error, wrapped, more):
    career = FakeCareer()
    career.before_handle = failing_at([error], (B, 0), names=wrapped)
    with (
        closing(a_handler(career, retry(3, then=skip()), **more)) as handler,
        pytest.raises(type(error)) as raised,
    ):
        handler.work(a_batch(A=[0], B=[0]), open_term(7))
    assert raised.value is error
    assert career.committed == {}


class Panic(BaseException):
    """As libraries in Rust raise it."""


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Panic("x")])
@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_record_that_asks_for_the_end_of_the_process_dies_so_often_and_is_passed_over(
    error, names, workers
):
    career = FakeCareer()
    career.before_handle = failing_at([error] * 9, names=names)
    with closing(a_handler(career, dead_letter(deaths=2), workers=workers)) as handler:
        assert handler.work(a_batch(A=[0, 1, 2], B=[5]), open_term(7))
    assert career.committed == {A: 3, B: 6}
    assert len(career.letters) == 1
    attempts = [line for line in career.log if line.startswith("handle") and "A1" in line]
    assert len(attempts) == (2 if names else 4)


def test_such_an_error_is_raised_where_none_is_passed_over_and_not_repeated_at_most_once():
    for on_error in ("raise", retry(3, 0.0)):
        career = FakeCareer()
        career.before_handle = lambda _rows: sys.exit(3)
        with pytest.raises(SystemExit):
            a_handler(career, on_error).work(a_batch(A=[0]), open_term(7))
        assert career.log == ["handle A0"]
    career.log.clear()
    assert a_handler(career, skip(), delivery="at_most_once").work(a_batch(A=[0]), open_term(7))
    assert career.log == ["commit A=1", "handle A0"]


WAIT_S = 30.0


@pytest.mark.parametrize("workers", [1, 3])
def test_the_last_ends_of_a_batch_are_committed_behind_however_many_work_on_it(workers):
    career = FakeCareer(fails={(B, 5): 1}, names=True)
    behind: list[dict[Partition, int]] = []
    more: dict[str, Any] = {"commit_behind": lambda _term, ends: behind.append(dict(ends))}
    with closing(a_handler(career, retry(1, 0), workers=workers, **more)) as handler:
        assert handler.work(a_batch(A=[0, 1], B=[6]), open_term(7))
        assert (career.committed, behind) == ({}, [{A: 2, B: 7}])
        assert handler.work(a_batch(A=[2], B=[5]), open_term(7))
    # what precedes a record that has failed is waited for
    assert career.committed[A] == 3


def test_a_thread_interrupted_in_its_wait_stops_the_work_and_leaves_when_all_have_ended():
    workers, unit, work = ThreadWorkers(1, "test"), AbandonableUnit(), mock.Mock()
    waits, is_stopped, may_end = threading.Event(), threading.Event(), threading.Event()
    work.supply = lambda start: [start(1, 0), waits.set()]
    work.stop = is_stopped.set
    follow = partial(may_end.wait, WAIT_S)
    waiting = threading.Thread(target=lambda: unit.run(lambda: workers.run(work, follow)))
    waiting.start()
    assert waits.wait(WAIT_S)
    unit.abandon()
    assert is_stopped.wait(WAIT_S)
    assert waiting.is_alive()
    may_end.set()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    work.has_ended.assert_called_once_with()
    workers.close()


def test_finished_records_are_committed_once_then_the_first_error_in_order_is_raised(caplog):
    career = FakeCareer(fails={(A, 1): ALWAYS, (B, 5): ALWAYS}, names=True)
    with closing(a_handler(career, workers=3)) as handler, pytest.raises(Bad, match="A1"):
        handler.work(a_batch(C=[2, 3], B=[5, 6], A=[0, 1]), open_term(7))
    log = sorted_until_committed(career.log)
    assert log == ["handle A0 A1", "handle B5 B6", "handle C2 C3", "commit A=1 C=4"]
    assert "records=t-0@0.." not in caplog.text
    assert "done about them in this batch career=billing records=t-1@5" in caplog.text


def test_at_most_once_commits_all_partitions_at_once_and_handles_all_though_the_term_ends():
    career, term = FakeCareer(), open_term(7)
    career.before_commit = lambda: term.wind_up(Reason.STEP_DOWN)
    with closing(a_handler(career, workers=3, delivery="at_most_once")) as handler:
        assert handler.work(a_batch(A=[0], B=[0], C=[0]), term)
    assert career.log[0] == "commit A=1 B=1 C=1"
    assert sorted(career.log[1:]) == ["handle A0", "handle B0", "handle C0"]


def test_where_the_effects_of_too_many_records_are_refused_none_more_is_passed_over(monkeypatch):
    monkeypatch.setattr("leaderq.kafka.handling.on_error.MOST_IN_A_ROW", 3)
    career = FakeCareer(refused=frozenset((A, each) for each in range(9)), undoes=True)
    term, why = open_term(7), []

    def told(reason: str | None) -> None:
        why.append(reason)
        term.wind_up(Reason.STEP_DOWN)

    handler = a_handler(career, skip(), on_held_up=told)
    assert not handler.work(a_batch(A=range(9)), term)
    assert career.committed == {A: 3}
    assert why == ["t-0@3: Bad: refused", None]


def test_what_waits_for_a_paused_term_is_handed_out_again_though_the_pause_is_over(monkeypatch):
    """The commit of another partition may last as long as the pause."""
    monkeypatch.setattr("leaderq.kafka.handling.on_error.MOST_IN_A_ROW", 0)
    career = FakeCareer(refused=frozenset([(A, 0)]), undoes=True)
    term, commits = open_term(7), count()
    monkeypatch.setattr(term, "wait", lambda _: [term.pause(True), True][1])
    career.before_commit = lambda: next(commits) == 2 and term.pause(False)
    handler = a_handler(career, skip(), batches=BY_PARTITION)
    handler.judge.note_passed_over(records(A, 9)[0], Bad("refused"))
    assert not handler.work(a_batch(A=[0], B=[0]), term)
    assert (career.committed, term.paused) == ({B: 1}, False)


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("on_error", [skip(), dead_letter(except_=Bad)])
@pytest.mark.parametrize("fails", [0, ALWAYS])
def test_of_a_batch_that_was_abandoned_nothing_more_is_begun_and_no_hold_up_waits_for_it(
    fails, on_error
):
    career, calls = FakeCareer(fails={(A, 0): fails}), count()
    lost: list[bool] = []
    career.before_handle = lambda _: next(calls) == 0 and lost.append(True)
    handler = a_handler(career, on_error, batches=BY_PARTITION, is_lost=lambda: bool(lost))
    assert not handler.work(a_batch(A=[0], B=[0]), open_term(7))
    assert [line for line in career.log if line.startswith("handle")] == ["handle A0"]
