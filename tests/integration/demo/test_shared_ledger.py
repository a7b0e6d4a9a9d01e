"""The ledger in a real PostgreSQL: bills, offsets and term in one transaction, and what zombies,
crowds and outages do to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from postgres import SUPERUSER, Database
from terms import open_term

from leaderq.cli.demo.ad_billing.billing import bill_for
from leaderq.cli.demo.ad_billing.shared_ledger import LedgerAway, SharedLedger
from leaderq.cli.demo.ad_billing.shared_totals import Totals
from leaderq.kafka.record import Partition, Record
from leaderq.term import OpenTerm
from leaderq.testing.ports import lease_port

LINE = b'h - - [t] "GET /a HTTP/1.1" 200 100 "-" "-"'


def records(first: int, last: int, partition: int = 0, value: bytes = LINE) -> list[Record]:
    return [
        Record(
            "clicks",
            partition,
            offset,
            -1,
            b"h",
            value,
            [("number", b"%d" % (1000 * partition + offset + 1))],
        )
        for offset in range(first, last)
    ]


def post(ledger: SharedLedger, rows: list[Record], term: OpenTerm) -> None:
    ledger.post(rows, [bill_for(row) for row in rows], term)


@pytest.fixture
def url(postgres: Database) -> str:
    return f"postgresql://{SUPERUSER}@127.0.0.1:{postgres.port}/{postgres.name}"


@pytest.fixture
def a_ledger(url: str) -> Iterator[Callable[[], SharedLedger]]:
    made: list[SharedLedger] = []

    def make() -> SharedLedger:
        made.append(SharedLedger(url, "ad-billing"))
        made[-1].create()
        return made[-1]

    yield make
    for ledger in made:
        ledger.close()


@pytest.fixture
def totals(url: str) -> Iterator[Totals]:
    opened = Totals(url)
    yield opened
    opened.close()


def test_bills_and_offsets_are_stored_together_in_the_order_of_billing(
    a_ledger: Any, totals: Totals
) -> None:
    ledger, term = a_ledger(), open_term(1)
    assert ledger.take_office(term) == {}
    post(ledger, [*records(0, 3), *records(0, 2, partition=1)], term)
    post(ledger, records(3, 4), term)
    entries = list(totals.entries())
    assert [(entry.partition, entry.offset, entry.number) for entry in entries] == [
        (0, 0, 1), (0, 1, 2), (0, 2, 3), (1, 0, 1001), (1, 1, 1002), (0, 3, 4)
    ]  # fmt: skip
    assert totals.ends() == {0: 4, 1: 2}
    assert totals.so_far()[0] == 6
    assert a_ledger().take_office(open_term(2)) == {
        Partition("clicks", 0): 4,
        Partition("clicks", 1): 2,
    }


def test_a_database_that_is_not_there_is_named_without_its_password() -> None:
    port = lease_port()
    try:
        with pytest.raises(
            LedgerAway, match=r"cannot be used.*is PostgreSQL running there"
        ) as away:
            SharedLedger(
                f"postgresql://billing:hunter2@127.0.0.1:{port.number}/billing", "ad-billing"
            ).create()
    finally:
        port.release()
    assert "hunter2" not in str(away.value)
