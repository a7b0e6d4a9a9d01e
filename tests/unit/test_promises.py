"""Each promise of ``docs/guarantees.rst`` has tests that ``make test`` runs: those that
``tests/promises.txt`` names, in simulated time where it is about order and time, and on real
servers wherever servers are part of it. Each window, defect and bug of ``docs/design/facts.md`` has
one that begins with its number.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from standing import TESTS, is_long, stands

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.rst"


def listed() -> dict[str, list[str]]:
    text = (TESTS / "promises.txt").read_text()
    parts = re.findall(r"^(?!tests/|#)(.+)\n((?:tests/.+\n)*)", text, re.MULTILINE)
    return {promise: tests.splitlines() for promise, tests in parts}


PROMISES = listed()


def events() -> list[str]:
    """The first column of the page's table; what is in it begins a row."""
    edge = "=" * 46
    _, _, rows, *_ = PAGE.read_text().split(f"\n{edge} ")
    return [event for line in rows.splitlines()[1:] if (event := line[: len(edge)].strip())]


def test_every_promise_of_the_page_has_its_tests_and_no_other_has():
    assert sorted(PROMISES) == sorted(events())


@pytest.mark.parametrize("promise", PROMISES)
def test_its_tests_stand_and_make_test_runs_them(promise):
    assert PROMISES[promise]
    assert [test for test in PROMISES[promise] if not stands(test) or is_long(test)] == []


ELSEWHERE = {
    "f14": "tests/integration/queues/test_failed_items.py"
    "::test_a_queue_of_more_items_than_java_can_list_is_listed_and_taken"
}


@pytest.mark.parametrize(
    "letter, count, files",
    [
        ("f", 16, "test_queue_windows.py"),
        ("d", 22, "test_dyno_defects.py"),
        ("bug_", 28, "test_election_*.py test_kafka_promises.py"),
    ],
)
def test_each_number_of_the_facts_has_a_scenario(letter, count, files):
    found = [
        name
        for pattern in files.split()
        for file in (TESTS / "simulation").glob(pattern)
        for name in re.findall(r"def test_(\w+)\(", file.read_text())
    ]
    told = {
        number for name in found for number in re.findall(rf"(?:^|_){letter}0?(\d+)(?=_)", name)
    }
    told |= {one.removeprefix(letter) for one, test in ELSEWHERE.items() if stands(test)}
    assert told >= {str(number) for number in range(1, count + 1)}
