"""The ledger: one transaction for bills, places and term; what is there already is not added, what
comes from a zombie refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leaderq.cli.demo.ad_billing.audit import entries_of
from leaderq.cli.demo.ad_billing.billing import bill_for
from leaderq.cli.demo.ad_billing.ledger import Bill, Ledger, TermRefused
from leaderq.errors import Deposed
from leaderq.kafka import Record
from leaderq.term import Reason


def bills(*offsets: int, partition: int = 0) -> list[Bill]:
    return [
        Bill("clicks", partition, offset, 10 * partition + offset + 1, "client", "/a", 5)
        for offset in offsets
    ]


def checks() -> None:
    return None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite3"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    with closing(Ledger(path)) as opened:
        yield opened


def one(path: Path, query: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchone()[0]


def test_what_is_delivered_again_is_billed_once_and_counted(ledger: Ledger, path: Path) -> None:
    ledger.post(bills(0, 1), 1, "a", checks)
    assert ledger.post(bills(0, 1, 2), 2, "b", checks) == 1
    assert [(entry.offset, entry.term) for entry in entries_of(path)] == [(0, 1), (1, 1), (2, 2)]
    assert one(path, "SELECT redelivered FROM office") == 2


def test_a_zombie_is_refused_as_a_whole(ledger: Ledger, path: Path) -> None:
    with closing(Ledger(path)) as newer:
        newer.take_office(2, "b", checks)
        with pytest.raises(TermRefused, match=r"term 1 .* term 2 of 'b'"):
            ledger.post(bills(0, 1), 1, "a", checks)
        assert list(entries_of(path)) == []
        assert newer.post(bills(0), 2, "b", checks) == 1


def test_the_wait_for_a_locked_ledger_ends_with_the_term(ledger: Ledger, path: Path) -> None:
    asked = 0

    def deposed_at_the_second_look() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise Deposed(term=1, reason=Reason.LEASE)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Deposed):
            ledger.post(bills(0), 1, "a", deposed_at_the_second_look)
    assert ledger.post(bills(0), 1, "a", checks) == 1


@pytest.mark.parametrize("value", [None, b"", b"\xff\xfe", b"something else"])
def test_a_record_that_is_no_click_is_entered_at_no_charge(value: bytes | None) -> None:
    bill = bill_for(Record("clicks", 0, 0, 0, None, value, [("number", b"x")]))
    assert (bill.client, bill.resource, bill.charge, bill.number) == ("-", "-", 0, None)
