"""The ledger as tables of PostgreSQL, which candidates on several hosts share: what ``docker
compose up`` bills into.

Who is authoritative: the database. One transaction holds the bills of a batch, the offset after it
and the number of the term, and begins by raising its term row
(:mod:`leaderq.kafka.stores.database_offsets`): a leader that was deposed without noticing is
refused whole. So nothing is billed twice or skipped, whatever dies at whatever moment, and Kafka's
own offsets are not needed.

What happens on each failure: a leader frozen, or cut off, in mid-transaction holds the row until
``FROZEN_FOR_MS`` later, when the server ends its session; its successor waits for that. The server
is unreachable: the term fails, and the next leader connects again. A lost answer to COMMIT: the
next term reads the offsets, and finds the batch billed or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leaderq.errors import ConfigurationError, LeaderqError, MissingPiece
from leaderq.kafka import DatabaseOffsets, Record
from leaderq.kafka.record import Partition
from leaderq.term import Term

from .ledger import Bill
from .shared_schema import SCHEMA

if TYPE_CHECKING:
    import psycopg

PREFIXES = ("postgresql://", "postgres://")
FROZEN_FOR_MS = 2_000
_SETTINGS = (
    f"-c idle_in_transaction_session_timeout={FROZEN_FOR_MS} -c lock_timeout=20000 -c"
    " synchronous_commit=on"
)
# A host that is gone does not say so: without these a cut-off leader would wait for its answer for
# a quarter of an hour.
_SIGNS_OF_LIFE: dict[str, Any] = {
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5_000,
}
_CONNECT_WITHIN_S = 5
# IF NOT EXISTS fails where two create at once
_FIRST_COMES = "SELECT pg_advisory_xact_lock(7031995)"
# One statement, not executemany: that is a pipeline, inside which PostgreSQL does not count how
# long a client is idle.
_POST = """
INSERT INTO billed (topic, partition, "offset", number, client, resource, charge, term, candidate)
SELECT bill.*, %s, %s::text
FROM unnest(
    %s::text[], %s::int[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::bigint[]
) AS bill
"""


class LedgerAway(LeaderqError):
    """The ledger's database does not answer, or ended the connection."""


def is_shared(ledger: str) -> bool:
    """Whether ``ledger``, the value of ``AD_BILLING_LEDGER``, names a database rather than a
    file.
    """
    return ledger.startswith(PREFIXES)


class SharedLedger:
    """The ledger in the database ``url``, of career ``career``. For one thread; connects when it is
    first used.
    """

    def __init__(self, url: str, career: str) -> None:
        self._url = url
        self._offsets = DatabaseOffsets(
            lambda: connected(url), career=career, table="ad_billing_offsets"
        )

    def create(self) -> None:
        """Make the tables and views that are not there; any number of candidates may do it at once.

        Raises :class:`LedgerAway` if the database does not answer.
        """
        import psycopg

        try:
            with connected(self._url) as connection, connection.transaction():
                connection.execute(_FIRST_COMES)
                connection.execute(SCHEMA)
            self._offsets.create_table()
        except psycopg.OperationalError as exc:
            raise went_away(exc) from exc

    def take_office(self, term: Term) -> Mapping[Partition, int]:
        """Refuse all terms before ``term`` from now on, and return the offsets at which to
        continue.
        """
        return self._offsets.load(term)

    def post(self, records: Sequence[Record], bills: Sequence[Bill], term: Term) -> None:
        """Add ``bills``, those of ``records``, and the offset after them, in one transaction;
        committed when it returns.

        Raises :class:`~leaderq.errors.Deposed` if a newer term has taken office; nothing was added
        then.
        """
        columns = map(list, zip(*map(_storable, bills), strict=True))
        with self._offsets.transaction(records, term) as cursor:
            cursor.execute(_POST, (term.number, term.candidate, *columns))

    def close(self) -> None:
        """Close the connection."""
        self._offsets.close()


def connected(url: str) -> psycopg.Connection[Any]:
    """A connection; the password may be in ``PGPASSWORD``.

    Raises :class:`~leaderq.errors.ConfigurationError` for a malformed ``url``, :class:`LedgerAway`
    if the database does not answer.
    """
    try:
        import psycopg
    except ImportError as exc:
        raise MissingPiece(
            "the ledger is in PostgreSQL, and psycopg is not installed; pip install"
            " 'psycopg[binary]'"
        ) from exc
    try:
        return psycopg.connect(
            url, options=_SETTINGS, connect_timeout=_CONNECT_WITHIN_S, **_SIGNS_OF_LIFE
        )
    except psycopg.ProgrammingError as exc:
        raise ConfigurationError(
            f"AD_BILLING_LEDGER is not the address of a database: {_said(exc)}"
        ) from exc
    except psycopg.OperationalError as exc:
        raise LedgerAway(
            f"the ledger's database cannot be used: {_said(exc)}; is PostgreSQL running there?"
        ) from exc


def went_away(error: Exception) -> LedgerAway:
    """What an ``OperationalError`` of the driver means, once there was a connection."""
    return LedgerAway(f"the ledger's database went away: {_said(error)}")


def _storable(bill: Bill) -> Bill:
    """``bill`` without the one character that PostgreSQL has no place for."""
    return bill._replace(
        client=bill.client.replace("\0", "\ufffd"), resource=bill.resource.replace("\0", "\ufffd")
    )


def _said(error: Exception) -> str:
    # What libpq says names host and user, and never the password.
    return " ".join(str(error).split()) or type(error).__name__
