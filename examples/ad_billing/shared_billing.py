"""The career of the demo cluster: as :class:`~.billing.AdBilling`, with the offsets in the ledger's
own transactions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from leaderq import KafkaLeaderCareer, Term
from leaderq.errors import ConfigurationError
from leaderq.kafka import Record
from leaderq.kafka.record import Partition

from .billing import LEDGER_VARIABLE, TOPIC, bill_for
from .shared_ledger import SharedLedger, is_shared

CAREER = "ad-billing"


class SharedAdBilling(KafkaLeaderCareer):
    """Bills every record of the topic ``clicks`` into the PostgreSQL database that
    ``AD_BILLING_LEDGER`` names, each exactly once.
    """

    name = CAREER
    topics = TOPIC
    offsets = "external"
    max_records = 500

    def prepare(self) -> None:
        """Make the ledger if it is not there, while still waiting for the turn to lead."""
        self._ledger = SharedLedger(shared_ledger_url(), CAREER)
        self._ledger.create()
        super().prepare()

    def load_offsets(self, term: Term) -> Mapping[Partition, int]:
        """Shut the ledger for all leaders before this one, and read where they left off."""
        return self._ledger.take_office(term)

    def handle(self, records: Sequence[Record], term: Term) -> None:
        """Bill one batch: charges, offsets and term in one transaction."""
        self._ledger.post(records, [bill_for(record) for record in records], term)

    def retire(self) -> None:
        """Close what :meth:`prepare` opened."""
        super().retire()
        if hasattr(self, "_ledger"):
            self._ledger.close()


def shared_ledger_url() -> str:
    """The configured database; raises :class:`~leaderq.errors.ConfigurationError` if there is
    none.
    """
    url = os.environ.get(LEDGER_VARIABLE, "")
    if not is_shared(url):
        raise ConfigurationError(
            f"{LEDGER_VARIABLE} is {url!r}, and candidates on several hosts need one database; set"
            " it to postgresql://USER@HOST/DATABASE (and PGPASSWORD), or run ad_billing:AdBilling,"
            " whose ledger is a file"
        )
    return url
