"""The ledger: one transaction for bills, places and term; what is there already is not added, what
comes from a zombie refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest
from terms import open_term

from leaderq.cli.demo.ad_billing.audit import entries_of
from leaderq.cli.demo.ad_billing.billing import bill_for
from leaderq.cli.demo.ad_billing.ledger import Bill, Ledger
from leaderq.errors import Deposed
from leaderq.fencing import FencingToken
from leaderq.kafka import Record
from leaderq.term import Reason
from leaderq.testing import check_fencing


def bills(*offsets: int, partition: int = 0) -> list[Bill]:
    return [
        Bill("clicks", partition, offset, 10 * partition + offset + 1, "client", "/a", 5)
        for offset in offsets
    ]


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
    ledger.post(bills(0, 1), open_term(1))
    assert ledger.post(bills(0, 1, 2), open_term(2)) == 1
    assert [(entry.offset, entry.term) for entry in entries_of(path)] == [(0, 1), (1, 1), (2, 2)]
    assert one(path, "SELECT redelivered FROM deliveries") == 2


def test_a_zombie_is_refused_as_a_whole(ledger: Ledger, path: Path) -> None:
    with closing(Ledger(path)) as newer:
        newer.take_office(open_term(2))
        with pytest.raises(Deposed, match=r"term 1 .* has seen term 2 of career 'c'") as refused:
            ledger.post(bills(0, 1), open_term(1))
        assert refused.value.reason is Reason.FENCED
        assert list(entries_of(path)) == []
        assert newer.post(bills(0), open_term(2)) == 1


def test_the_wait_for_a_locked_ledger_ends_with_the_term(ledger: Ledger, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Deposed) as over:
            ledger.post(bills(0), open_term(1, lasts_s=0.1))
    assert over.value.reason is Reason.LEASE
    assert ledger.post(bills(0), open_term(1)) == 1


def test_the_ledger_passes_the_check_of_a_fenced_store(tmp_path: Path) -> None:
    numbers = count()

    @contextmanager
    def write(name: str, token: FencingToken, value: str) -> Iterator[None]:
        with closing(Ledger(tmp_path / name)) as ledger:
            yield
            ledger.post(
                [Bill("clicks", 0, next(numbers), 1, value, "", 0)], open_term(token.number)
            )

    def read(name: str) -> object:
        return one(tmp_path / name, "SELECT client FROM billed ORDER BY rowid DESC LIMIT 1")

    report = check_fencing(write, read, blocked_after_s=0.1, threads=2, writes=3)
    assert report.holds, report


@pytest.mark.parametrize("value", [None, b"", b"\xff\xfe", b"something else"])
def test_a_record_that_is_no_click_is_entered_at_no_charge(value: bytes | None) -> None:
    bill = bill_for(Record("clicks", 0, 0, 0, None, value, [("number", b"x")]))
    assert (bill.client, bill.resource, bill.charge, bill.number) == ("-", "-", 0, None)
