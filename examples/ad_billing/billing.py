"""The career: takes clicks from Kafka and bills them, client by client, in order."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from leaderq import KafkaLeaderCareer, Term
from leaderq.errors import ConfigurationError
from leaderq.kafka import Record

from .clicks import parse
from .ledger import Bill, Ledger
from .prices import charge

TOPIC = "clicks"
LEDGER_VARIABLE = "AD_BILLING_LEDGER"
DEFAULT_LEDGER = "ad-billing.sqlite3"
NUMBER = "number"  # the header in which a feeder counts its records


class AdBilling(KafkaLeaderCareer):
    """Bills every record of the topic ``clicks``: key = client, value = a line of an access log.

    The ledger is the file named by ``AD_BILLING_LEDGER``, else ``ad-billing.sqlite3`` in the
    current directory. A batch that is repeated after a change of leader, as Kafka's own offsets
    allow, adds nothing to it.
    """

    topics = TOPIC
    max_records = 500

    def prepare(self) -> None:
        """Open the ledger and the connections to Kafka while still waiting for the turn to lead."""
        self._ledger = open_ledger()
        super().prepare()

    def inaugurate(self, term: Term) -> None:
        """Shut the ledger for all leaders before this one."""
        self._ledger.take_office(term)

    def handle(self, records: Sequence[Record], term: Term) -> None:
        """Bill one batch in one transaction."""
        self._ledger.post([bill_for(record) for record in records], term)

    def retire(self) -> None:
        """Close what :meth:`prepare` opened."""
        super().retire()
        if hasattr(self, "_ledger"):
            self._ledger.close()


def open_ledger() -> Ledger:
    """The configured ledger; raises :class:`~leaderq.errors.ConfigurationError` if it cannot be
    used.
    """
    path = ledger_path()
    try:
        return Ledger(path)
    except sqlite3.Error as exc:
        raise ConfigurationError(
            f"{str(path)!r} cannot be used as ledger: {exc}; set {LEDGER_VARIABLE} to a file in a"
            " folder that can be written"
        ) from exc


def ledger_path() -> Path:
    """Where the ledger is."""
    return Path(os.environ.get(LEDGER_VARIABLE) or DEFAULT_LEDGER)


def bill_for(record: Record) -> Bill:
    """What ``record`` costs; one that is not a line of an access log is entered too, at no
    charge.
    """
    click = parse((record.value or b"").decode(errors="replace"))
    client = (record.key or b"").decode(errors="replace") or (click.client if click else "-")
    number = next(
        (int(value) for name, value in record.headers if name == NUMBER and _is_count(value)), None
    )
    resource, cost = (click.resource, charge(click)) if click else ("-", 0)
    return Bill(record.topic, record.partition, record.offset, number, client, resource, cost)


def _is_count(value: bytes) -> bool:
    return value.isdigit() and len(value) <= 18  # more than that fits no ledger
