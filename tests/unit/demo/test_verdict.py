"""Audit, table and verdict: green on a good ledger, red on every way in which one can be bad."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from leaderq.cli.demo.ad_billing.audit import audit, entries_of
from leaderq.cli.demo.ad_billing.ledger import Bill, Entry, Ledger
from leaderq.cli.demo.report import (
    Change,
    Outcome,
    Span,
    billing_gap_ms,
    figures,
    spans,
    verdict,
    write_changes,
)

GOOD = [
    Entry(1, 0, 0, 1, 100.0),
    Entry(2, 1, 0, 1, 100.5),
    Entry(3, 0, 1, 2, 100.75),
    Entry(4, 1, 1, 2, 101.0),
]
CHANGE = Change("kill -9", "a", "b", term=2, done_at=100.5, inaugurated_at=100.525)


def outcome_of(entries: list[Entry], fed: int = 4) -> Outcome:
    return Outcome(
        changes=[CHANGE], billed=spans(entries), audit=audit(entries, fed), redelivered=3, wanted=1
    )


def test_a_ledger_in_order_has_no_problems() -> None:
    assert audit(GOOD, 4).problems == []
    assert verdict(outcome_of(GOOD)).startswith("VERDICT: all held")


@pytest.mark.parametrize(
    ("entries", "fed", "problem"),
    [
        ([*GOOD, Entry(4, 1, 2, 2, 102.0)], 4, "1 records were billed twice"),
        (GOOD[:3], 4, "1 records were skipped"),
        (GOOD, 5, "1 records were skipped"),
        ([], 4, "4 records were skipped"),
        ([*GOOD, Entry(5, 1, 2, 2, 102.0)], 4, "1 bills are for records that nobody fed"),
        ([*GOOD, Entry(None, 1, 2, 2, 102.0)], 4, "1 bills are for records that nobody fed"),
        (
            [GOOD[2], GOOD[1], GOOD[0], GOOD[3]],
            4,
            "1 bills are out of the order of their partition",
        ),
        (
            [*GOOD[:3], GOOD[3]._replace(term=1)],
            4,
            "1 bills were added by a term after a newer one",
        ),
    ],
)
def test_whatever_is_wrong_with_a_ledger_turns_the_verdict_red(
    entries: list[Entry], fed: int, problem: str
) -> None:
    outcome = outcome_of(entries, fed)
    assert problem in outcome.problems
    assert verdict(outcome).startswith("VERDICT: not everything held")
    assert problem in verdict(outcome)


@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM billed WHERE number = 2",
        "UPDATE billed SET number = 3 WHERE number = 2",
        (
            'INSERT INTO billed SELECT topic, partition, "offset" + 9, number, client, resource,'
            " charge, term, candidate, billed_at FROM billed WHERE number = 1"
        ),
        'UPDATE billed SET "offset" = "offset" + 9 WHERE number = 1',
        "UPDATE billed SET term = 3 WHERE number = 1",
    ],
)
def test_a_ledger_tampered_with_is_found_out(tmp_path: Path, tampering: str) -> None:
    path = tmp_path / "ledger.sqlite3"
    with closing(Ledger(path)) as ledger:
        for number, term in ((1, 1), (2, 1), (3, 2)):
            ledger.post(
                [Bill("clicks", 0, number - 1, number, "c", "/", 1)], term, "a", lambda: None
            )
    assert audit(entries_of(path), 3).problems == []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(tampering)
    assert audit(entries_of(path), 3).problems != []


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda good: replace(good, changes=[]), "only 0 of 1 changes of leader took place"),
        (lambda good: replace(good, broken=["the guardian stayed"]), "the guardian stayed"),
        (lambda good: replace(good, billed={1: good.billed[1]}), "b billed nothing in term 2"),
    ],
)
def test_a_promise_broken_on_the_way_turns_the_verdict_red(
    spoil: Callable[[Outcome], Outcome], problem: str
) -> None:
    assert spoil(outcome_of(GOOD)).problems == [problem]


def test_gaps_are_taken_from_the_deed_and_from_the_bills() -> None:
    billed = spans(GOOD)
    assert billed == {1: Span(100.0, 100.5, 2), 2: Span(100.75, 101.0, 2)}
    assert CHANGE.takeover_ms == pytest.approx(25)
    assert billing_gap_ms(2, billed) == pytest.approx(250)
    assert billing_gap_ms(1, billed) is None
    assert billing_gap_ms(9, billed) is None


def test_the_gap_skips_terms_that_billed_nothing() -> None:
    assert billing_gap_ms(5, {1: Span(1.0, 2.0, 1), 5: Span(3.0, 4.0, 1)}) == pytest.approx(1000)


def test_the_table_has_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    changes = [CHANGE, Change("transfer to a", "b", "a", 12, 1.0, None)]
    write_changes(replace(outcome_of(GOOD), changes=changes))
    assert capsys.readouterr().out.splitlines() == [
        "CHANGE         FROM  TO  TERM  TO INAUGURATION  BILLING STOOD STILL",
        "kill -9        a     b   2     25 ms            250 ms",
        "transfer to a  b     a   12    -                -",
    ]


def test_the_figures_name_what_must_be_nothing() -> None:
    lines = "\n".join(figures(outcome_of(GOOD)))
    assert "records billed                 4" in lines
    assert "billed twice                   0" in lines
    assert "skipped                        0" in lines
