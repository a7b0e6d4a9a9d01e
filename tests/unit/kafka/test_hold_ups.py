"""Outages that hold up the work, records that rest, records that hold the work up until an operator
lets them pass, and handlers that do nothing.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from typing import Any

import pytest
from fake_career import (
    A,
    B,
    Bad,
    FakeCareer,
    FakeMarks,
    a_batch,
    a_handler,
    failing_at,
    open_term,
    records,
)
from few_znodes import FewZnodes
from test_arguments import coroutine, generator, stream
from test_declaration import Sums, dressed
from test_handling_laws import ALWAYS, BY_KEY

from leaderq import errors
from leaderq.base import clock
from leaderq.base.arguments import NotAPlainFunction
from leaderq.errors import ConfigurationError
from leaderq.kafka import DependencyUnavailable, KafkaLeaderCareer, Record, dead_letter, retry, skip
from leaderq.kafka.dead_letters.format import read_dead_letter
from leaderq.kafka.handling import batch_handler, burials
from leaderq.kafka.handling.burials import BurialRequests
from leaderq.kafka.record import Batch, Partition
from leaderq.term import Reason, Term

pytestmark = pytest.mark.usefixtures("short_pauses")
OUTAGES = [ConnectionRefusedError("no"), DependencyUnavailable("the ledger")]
POLICIES = [skip(), dead_letter(), retry(1, 0.0, then=dead_letter()), retry(2, 0.0)]


@pytest.mark.parametrize("error", OUTAGES, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("on_error", POLICIES)
def test_an_outage_is_waited_for_and_no_record_is_passed_over(error, on_error):
    career = FakeCareer()
    career.before_handle = failing_at([error] * 20)
    assert a_handler(career, on_error).work(a_batch(A=[0, 1, 2]), open_term(7))
    assert career.letters == []
    assert career.effects == [(A, 0), (A, 1), (A, 2)]
    assert career.committed == {A: 3}


def test_an_outage_counts_no_attempt():
    career = FakeCareer(fails={(A, 1): 1}, names=True)
    career.before_handle = failing_at([ConnectionRefusedError("no")] * 3, names=True)
    assert a_handler(career, retry(1, 0.0, then=skip())).work(a_batch(A=[0, 1]), open_term(7))
    assert career.effects == [(A, 1)]  # A0 was said to be done


@pytest.mark.parametrize("undoes", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_what_precedes_the_record_in_hand_is_committed_meanwhile(undoes, workers):
    career = FakeCareer(fails={(A, 1): 4}, names=True, undoes=undoes)
    seen: list[dict[Any, int]] = []

    def look(handed: Sequence[Record]) -> None:
        if len(handed) == 1 and handed[0].offset == 1:
            seen.append(dict(career.committed))

    career.before_handle = look
    with closing(a_handler(career, dead_letter(except_=Bad), workers=workers)) as handler:
        assert handler.work(a_batch(A=[0, 1, 2], B=[5]), open_term(7))
    assert career.letters == []
    assert career.committed == {A: 3, B: 6}
    assert sorted(set(career.effects)) == [(A, 0), (A, 1), (A, 2), (B, 5)]
    assert seen
    assert all(each[A] == 1 for each in seen[1:])


def test_a_hold_up_that_lasts_too_long_fails_the_term_and_passes_nothing_over(monkeypatch):
    monkeypatch.setattr("leaderq.kafka.handling.on_error.LONGEST_S", 0.0)
    career = FakeCareer()
    career.before_handle = failing_at([OSError("away")])
    with pytest.raises(OSError, match="away"):
        a_handler(career, skip()).work(a_batch(A=[0, 1]), open_term(7))
    assert career.committed == {}


def test_a_hold_up_ends_with_its_term_and_the_next_one_waits_as_long(at, monkeypatch):
    """Even if this process leads again much later, having handled nothing since."""
    career, held = FakeCareer(), list[str | None]()
    career.before_handle = failing_at([OSError("away")] * 3, (A, 0))
    handler = a_handler(career, skip(), on_held_up=held.append)
    for number in (7, 8):
        term = open_term(number)
        monkeypatch.setattr(term, "wait", lambda _, term=term: [term.pause(True), True][1])
        assert not handler.work(a_batch(A=[0]), term)
        at[0] += 1000.0
    term.pause(False)  # and that is another one
    assert not handler.work(a_batch(A=[0]), term)
    term.pause(False)
    assert handler.work(a_batch(A=[0]), term)
    assert career.committed == {A: 1}
    assert [why is None for why in held] == [False, True] * 3


@pytest.mark.parametrize("ending", [skip, dead_letter])
@pytest.mark.parametrize("key", [b"%d", None])
def test_so_many_in_a_row_that_fail_alike_stop_the_passing_over(key, ending, caplog):
    career = FakeCareer(fails={(A, n): ALWAYS for n in range(109)}, names=True)
    term = open_term(7)
    rows = [row.replace(key=key and key % row.offset) for row in records(A, *range(109))]
    handler = a_handler(career, ending(), on_held_up=lambda _: term.wind_up(Reason.STEP_DOWN))
    with caplog.at_level(logging.WARNING):
        assert not handler.work(Batch({A: rows}), term)
    assert career.committed == {A: 100}
    assert "records=t-0@100 most_in_a_row=100" in caplog.text


LATER = retry(2, backoff_s=0.5, then="skip")


def resting(
    career: FakeCareer, on_error: object = LATER, **more: object
) -> Callable[[Batch, Term], bool]:
    def rest(partition: Partition, for_s: float) -> bool:
        career.log.append(f"rest {'AB'[partition.number]} {for_s:g}")
        return True

    return a_handler(career, on_error, rest=rest, **more).work


def test_the_others_go_on_and_the_culprit_is_tried_when_it_is_handed_out_again():
    career, term = FakeCareer(fails={(A, 1): 2}, names=True), open_term(7)
    work = resting(career)
    assert work(a_batch(A=[0, 1, 2], B=[0, 1]), term)
    assert work(a_batch(B=[2]), term)
    assert work(a_batch(A=[1, 2], B=[3]), term)
    assert work(a_batch(A=[1, 2, 3]), term)
    assert career.log == [
        *("handle A0 A1 A2 B0 B1", "commit A=1", "rest A 0.5", "handle B0 B1", "commit B=2"),
        *("handle B2", "commit B=3"),
        *("handle A1", "rest A 1", "handle B3", "commit B=4"),
        *("handle A1", "handle A2 A3", "commit A=4"),
    ]


def test_attempts_are_counted_over_all_batches():
    career, term = FakeCareer(fails={(A, 0): ALWAYS}, names=True), open_term(7)
    work = resting(career)
    for _ in range(3):
        assert work(a_batch(A=[0, 1]), term)
    assert career.log[-5:] == ["rest A 1", "handle A0", "commit A=1", "handle A1", "commit A=2"]
    assert career.log.count("handle A0") == 2


def test_attempts_are_counted_of_one_record_in_one_term():
    career = FakeCareer(fails={(A, 0): ALWAYS, (A, 5): 1}, names=True)
    work = resting(career)
    for offset, number in ((0, 7), (0, 8), (5, 8)):  # somebody has moved the offsets
        assert work(a_batch(A=[offset]), open_term(number))
    assert [line for line in career.log if line.startswith("rest")] == ["rest A 0.5"] * 3


@pytest.mark.parametrize("why", ["short", "several partitions", "at most once", "marked"])
def test_all_wait_where_the_partition_cannot_rest_alone(why, monkeypatch):
    monkeypatch.setattr(batch_handler, "REST_FROM_S", 0.02)
    backoff_s = 0.01 if why == "short" else 0.02
    career = FakeCareer(fails={(A, 0): 1}, names=why != "several partitions")
    more: dict[str, object] = {}
    if why == "marked":
        more["marks"] = FakeMarks(career, {A: 1})
    delivery = "at_most_once" if why == "at most once" else "at_least_once"
    work = resting(career, retry(1, backoff_s, then="skip"), delivery=delivery, **more)
    assert work(a_batch(A=[0], B=[0]), open_term(7))
    assert not [line for line in career.log if line.startswith("rest")]
    assert (A, 0) in career.effects


@pytest.mark.parametrize("method", KafkaLeaderCareer._called)
@pytest.mark.parametrize("written", [coroutine, generator, stream])
def test_no_method_of_a_career_may_leave_its_work_undone_when_called(method, written):
    kind = type("Wrong", (Sums,), {method: written})
    with pytest.raises(ConfigurationError, match=f"{method} of Wrong is .*plain function"):
        dressed(kind)._declared()


@pytest.mark.parametrize("on_error", ["raise", skip(), dead_letter(), retry(3, 0.0, then=skip())])
@pytest.mark.parametrize("hidden", [coroutine, generator, stream, Future])
def test_a_handler_that_returns_work_to_do_fails_the_batch_and_nothing_is_passed_over(
    hidden, on_error
):
    career = FakeCareer()
    career.handle = lambda _records, _term: hidden()
    with pytest.raises(NotAPlainFunction, match="handle returned"):
        a_handler(career, on_error).work(a_batch(A=[0, 1]), open_term(7))
    assert career.committed == {}
    assert career.log == []


def test_where_nobody_knows_the_culprit_the_whole_part_of_its_partition_is_tried_again():
    career, term = FakeCareer(fails={(A, 1): 1}), open_term(7)
    work = resting(career, batches="partition")
    assert work(a_batch(A=[0, 1], B=[0]), term)
    assert work(a_batch(A=[0, 1, 2]), term)
    assert career.log == [
        *("handle A0 A1", "rest A 0.5", "handle B0", "commit B=1"),
        *("handle A0 A1", "handle A2", "commit A=3"),
    ]


PATH = "/c/burials"


class Znode(FewZnodes):
    def ask(self, place: str) -> None:
        burials.ask(self, PATH, place, "ann@host")

    @property
    def requests(self) -> BurialRequests:
        return BurialRequests(self, PATH)

    @property
    def found(self) -> dict[str, Any]:
        return json.loads(self.data.get(PATH, b"{}"))


@pytest.fixture
def znode():
    return Znode()


def failing(znode: Znode, *, asked: int = 3, names: bool = True, **more: bool) -> FakeCareer:
    """Record A1 always fails; with its ``asked``-th attempt somebody asks to let it pass."""
    career = FakeCareer(fails={(A, 1): 99}, names=names, **more)
    tried: list[Record] = []

    def before(handed: Sequence[Record]) -> None:
        now = [one for one in handed if (one.partition, one.offset) == (0, 1)]
        tried.extend(now)
        if now and len(tried) == asked:
            znode.ask(now[0].place)

    career.before_handle = before
    return career


@pytest.mark.parametrize("undoes", [False, True])
@pytest.mark.parametrize("shape", [{}, {"workers": 2}, BY_KEY], ids=str)
@pytest.mark.parametrize("names", [False, True])
@pytest.mark.parametrize(
    ("policy", "letters"), [(dead_letter(except_=Bad), [1]), (skip(except_=Bad), [])]
)
def test_a_record_that_holds_the_work_up_passes_when_an_operator_asks(
    znode, undoes, shape, names, policy, letters
):
    career = failing(znode, names=names, undoes=undoes)
    told: list[str | None] = []
    more = {**shape, "burials": znode.requests, "on_held_up": told.append}
    with closing(a_handler(career, policy, **more)) as handler:
        assert handler.work(a_batch(A=[0, 1, 2], B=[5]), znode.term(7))
    found = [Record("dead", 0, 0, 0, *one[2:0:-1], one.headers) for one in career.letters]
    assert [read_dead_letter(letter).offset for letter in found] == letters
    assert career.committed == {A: 3, B: 6}
    assert sorted(set(career.effects)) == [(A, 0), (A, 2), (B, 5)]
    assert told[-1] is None
    (done,) = znode.found["done"]
    assert (znode.found["asked"], done["at"], done["by"]) == ([], "t-0@1", "ann@host")
    assert done["term"] == 7


@pytest.mark.parametrize("policy", ["raise", retry(2, 0.0)])
def test_a_record_that_fails_every_term_passes_when_an_operator_asks(znode, policy, caplog):
    career = failing(znode, asked=4)
    handler = a_handler(career, policy, burials=znode.requests)
    for number in range(7, 11):
        term = znode.term(number)
        with suppress(Bad):
            handler.work(a_batch(A=range(career.committed.get(A, 0), 3)), term)
        if career.committed == {A: 3}:
            break
    assert career.committed == {A: 3}
    assert "leaderq dead bury --career billing --at t-0@1 --yes" in caplog.text
    assert "record skipped career=billing records=t-0@1 attempts=" in caplog.text
    assert "let pass by ann@host" in caplog.text


def test_a_request_about_another_record_changes_nothing(znode):
    znode.ask("t-0@9")
    career = FakeCareer(fails={(A, 1): 9}, names=True)
    with pytest.raises(Bad):
        a_handler(career, burials=znode.requests).work(a_batch(A=[0, 1]), open_term(7))
    assert len(znode.found["asked"]) == 1


@pytest.mark.parametrize("is_done", [False, True])
def test_the_end_of_a_request_is_written_again_where_it_may_be_lost(znode, is_done):
    for place in ("t-0@1", "t-0@2", "t-0@1"):
        znode.ask(place)
    (record,) = a_batch(A=[1]).records[A]
    znode.errors = [(errors.ConnectionLost("no"), is_done), (errors.BadVersion("no"), False)]
    znode.requests.done(znode.term(7), record)
    assert [row["at"] for row in znode.found["asked"]] == ["t-0@2"]
    assert [row["at"] for row in znode.found["done"]] == ["t-0@1"]
    burials.take_back(znode, PATH, "t-0@2")
    assert znode.found["asked"] == []
    assert burials.wait_until_done(znode, PATH, "t-0@2", 0.0)


def test_while_zookeeper_is_silent_in_a_term_that_is_to_end_it_is_asked_again_after_a_pause(
    znode, monkeypatch
):
    slept: list[float] = []
    monkeypatch.setattr(clock, "sleep", slept.append)
    znode.ask("t-0@1")
    (record,), term = a_batch(A=[1]).records[A], znode.term(7)
    term.wind_up(Reason.STEP_DOWN)
    znode.get_errors = [errors.ConnectionLost("no")] * 2
    znode.requests.done(term, record)
    assert slept == [0.05, 0.05]
    znode.get_errors = [errors.SessionExpired("no")]
    with pytest.raises(errors.Deposed):
        znode.requests.done(term, record)


def test_what_is_no_request_is_said_and_lets_nothing_pass(znode, caplog):
    znode.data[PATH] = b"no json"
    assert znode.requests.among(a_batch(A=[1]).records[A]) is None
    assert "requests of operators not known" in caplog.text
    with pytest.raises(errors.CorruptRecord, match="delete it"):
        burials.read(znode, PATH)
