"""What the watch of the demo cluster says, and the pace and pulse of its generator: pure parts."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leaderq.cli.demo.ad_billing.audit import audit_places, await_billed
from leaderq.cli.demo.ad_billing.generator import Pulse, paced
from leaderq.cli.demo.ad_billing.ledger import Entry
from leaderq.cli.demo.ad_billing.watch import Story, progress
from leaderq.election.observer import View

NOBODY = View(
    career="ad-billing", leader=None, host=None, pid=None, term=0, stage=None,
    began=None, ended=None, reason=None, paused=False, candidates=(),
)  # fmt: skip
A_LEADS = replace(
    NOBODY,
    leader="a",
    host="h",
    pid=7,
    term=1,
    stage="execution",
    began=100.0,
    candidates=("a", "b", "c"),
)


def told(story: Story, view: View) -> list[str]:
    return list(story.go_on(view))


def test_the_story_of_a_crash() -> None:
    story = Story()
    assert told(story, NOBODY) == []
    assert told(story, A_LEADS) == ["a leads term 1; b, c wait"]
    assert told(story, A_LEADS) == []
    gone = replace(A_LEADS, leader=None, stage=None, candidates=("b", "c"))
    assert told(story, gone) == [
        "term 1 of a is over: it fell silent",
        "a has left",
    ]
    assert told(story, replace(A_LEADS, leader="b", term=2, candidates=("b", "c"))) == [
        "b leads term 2; c waits"
    ]
    assert told(story, replace(A_LEADS, leader="b", term=2, candidates=("b", "c", "a"))) == [
        "a stands for election"
    ]
    assert story.awaited == [1, 2]


def test_the_story_of_a_hand_over_with_its_reason() -> None:
    story = Story()
    told(story, A_LEADS)
    ended = replace(
        A_LEADS, leader=None, stage=None, ended=120.0, reason="withdrawn", candidates=("b", "c")
    )
    assert told(story, ended)[0] == "term 1 of a is over: the candidate withdrew"
    assert (
        told(story, replace(ended, leader="b", term=2, ended=None, reason=None))[0]
        == "b leads term 2; c waits"
    )


def test_a_change_that_was_too_quick_to_be_seen_is_told_as_two() -> None:
    story = Story()
    told(story, A_LEADS)
    assert told(story, replace(A_LEADS, leader="b", term=4, candidates=("b", "a", "c"))) == [
        "term 1 of a is over",
        "b leads term 4; a, c wait",
    ]


def test_terms_that_never_billed_are_not_awaited_for_ever() -> None:
    story = Story()
    for term in range(1, 9):
        told(story, replace(A_LEADS, term=term))
    assert story.awaited == [6, 7, 8]


def test_the_line_of_how_things_stand() -> None:
    assert (
        progress(A_LEADS, (12345, 199.6), 17, 112.2)
        == "a leads term 1, execution, for 12 s: billed 12,345, 200/s, lag 17"
    )
    assert progress(NOBODY, None, None, 0.0) == "nobody has led yet: billed -, lag -"
    assert (
        progress(replace(NOBODY, term=3), (5, 0.0), None, 0.0)
        == "nobody leads; the last term was 3: billed 5, 0/s, lag -"
    )


def test_the_pace_is_kept_and_ends_when_told_to() -> None:
    stopped = threading.Event()
    beats: list[int] = []
    records: Iterator[int] = itertools.count(1)
    taken = []
    for record in paced(records, 1000.0, stopped, beats.append):  # type: ignore[arg-type, type-var]
        taken.append(record)
        if len(taken) == 120:
            stopped.set()
    assert taken == list(range(1, len(taken) + 1))
    assert len(taken) >= 120
    assert beats[0] == 0
    assert beats == sorted(beats)


def test_a_pulse_is_felt_until_it_is_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pulse"
    assert not Pulse.is_felt(path)
    Pulse(path, 1).beat(10)
    assert Pulse.is_felt(path)
    os.utime(path, (0, 0))
    assert not Pulse.is_felt(path)


def entry(offset: int, number: int, *, partition: int = 0, term: int = 1) -> Entry:
    return Entry(number, partition, offset, term, 0.0)


def test_an_audit_up_to_an_offset_ignores_what_came_later() -> None:
    entries = [entry(0, 1), entry(0, 2, partition=1), entry(1, 3), entry(2, 9)]
    result = audit_places(entries, {0: 2, 1: 1})
    assert (result.fed, result.billed, result.problems) == (3, 3, [])


def test_an_audit_of_places_finds_what_is_missing_or_there_twice() -> None:
    assert audit_places([entry(0, 1), entry(2, 3)], {0: 3}).skipped == 1
    assert audit_places([entry(0, 1), entry(1, 1)], {0: 2}).twice == 1
    assert audit_places([entry(1, 2), entry(0, 1)], {0: 2}).disordered == 1
    assert audit_places([entry(0, 1, term=2), entry(1, 2, term=1)], {0: 2}).usurped == 1


def test_an_audit_waits_for_what_was_fed_when_it_began() -> None:
    reached = iter([{}, {0: 1}, {0: 5}])
    await_billed(lambda: next(reached), {0: 2})
    assert list(reached) == []
