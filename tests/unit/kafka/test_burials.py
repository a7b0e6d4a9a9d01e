"""Records that hold the work up until an operator lets them pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

import pytest
from fake_career import A, B, Bad, FakeCareer, a_batch, a_handler, open_term
from few_znodes import FewZnodes
from test_handling_laws import BY_KEY

from leaderq.base import clock
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    CorruptRecord,
    Deposed,
    Reason,
    SessionExpired,
)
from leaderq.kafka import Record, dead_letter, retry, skip
from leaderq.kafka.dead_letters.format import read_dead_letter
from leaderq.kafka.handling import burials
from leaderq.kafka.handling.burials import BurialRequests
from leaderq.kafka.handling.on_error import OnError

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


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(OnError, "pause_s", lambda _self, _times: 0.001)


def failing(
    znode: Znode, *, names: bool = True, undoes: bool = False, asked: int = 3
) -> FakeCareer:
    """Record A1 always fails; with its ``asked``-th attempt somebody asks to let it pass."""
    career = FakeCareer(fails={(A, 1): 99}, names=names, undoes=undoes)
    tried: list[Record] = []

    def before(handed: Sequence[Record]) -> None:
        now = [one for one in handed if (one.partition, one.offset) == (0, 1)]
        tried.extend(now)
        if now and len(tried) == asked:
            znode.ask(now[0].place)

    career.before_handle = before
    return career


def set_aside(career: FakeCareer) -> list[int]:
    letters = [Record("dead", 0, 0, 0, *letter) for letter in career.letters]
    return [read_dead_letter(letter).offset for letter in letters]


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
    assert set_aside(career) == letters
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
    znode.errors = [(ConnectionLost("no"), is_done), (BadVersion("no"), False)]
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
    znode.get_errors = [ConnectionLost("no")] * 2
    znode.requests.done(term, record)
    assert slept == [0.05, 0.05]
    znode.get_errors = [SessionExpired("no")]
    with pytest.raises(Deposed):
        znode.requests.done(term, record)


def test_what_is_no_request_is_said_and_lets_nothing_pass(znode, caplog):
    znode.data[PATH] = b"no json"
    assert znode.requests.among(a_batch(A=[1]).records[A]) is None
    assert "requests of operators not known" in caplog.text
    with pytest.raises(CorruptRecord, match="delete it"):
        burials.read(znode, PATH)
