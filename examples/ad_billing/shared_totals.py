"""What can be read from the ledger in PostgreSQL while it is written: how far it is, and how long
billing stood still. Writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .ledger import Entry
from .shared_ledger import connected, went_away

if TYPE_CHECKING:
    import psycopg
    from typing_extensions import LiteralString

_BILLED = (
    "SELECT coalesce(sum(next_offset), 0)::bigint FROM ad_billing_offsets WHERE partition >= 0"
)
_ENDS = "SELECT partition, next_offset FROM ad_billing_offsets WHERE partition >= 0"
_FIRST = (
    "SELECT candidate, extract(epoch FROM billed_at)::float8 FROM billed WHERE term = %s ORDER BY"
    " billed_at LIMIT 1"
)
_LAST_BEFORE = (
    "SELECT extract(epoch FROM billed_at)::float8 FROM billed WHERE term < %s ORDER BY term DESC,"
    " billed_at DESC LIMIT 1"
)
# of billing
_ENTRIES = (
    'SELECT number, partition, "offset", term, extract(epoch FROM billed_at)::float8 FROM billed'
    " ORDER BY place"
)
_LONGEST_PAUSE = (
    "SELECT coalesce(max(pause), 0)::float8 FROM (SELECT extract(epoch FROM billed_at -"
    " lag(billed_at) OVER (ORDER BY place)) AS pause FROM billed WHERE billed_at BETWEEN"
    " to_timestamp(%s) AND to_timestamp(%s)) AS pauses"
)
_BILLS = "SELECT client, clicks, (charge * 1000000)::bigint FROM bills LIMIT 5"


@dataclass(frozen=True)
class Begun:
    """The first bill of a term: whose it is, when (epoch seconds), and how long after the last of
    the term before.
    """

    candidate: str
    at: float
    stood_still_s: float | None


class Totals:
    """The ledger in the database ``url``, looked at again and again over one connection, which is
    opened again if it breaks.

    Raises :class:`~.shared_ledger.LedgerAway` while the database does not answer.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None
        self._last: tuple[float, int] | None = None

    def so_far(self) -> tuple[int, float]:
        """How many records are billed, and how many a second since the last time this was asked."""
        billed, now_s = int(self._rows(_BILLED)[0][0]), time.monotonic()
        then_s, before = self._last or (now_s, billed)
        self._last = (now_s, billed)
        return billed, (billed - before) / (now_s - then_s) if now_s > then_s else 0.0

    def begun(self, term: int) -> Begun | None:
        """The beginning of ``term``; ``None`` before its first bill."""
        first = self._rows(_FIRST, term)
        if not first:
            return None
        (candidate, at), before = first[0], self._rows(_LAST_BEFORE, term)
        return Begun(candidate, at, at - before[0][0] if before else None)

    def longest_pause_s(self, since: float, until: float) -> float:
        """The longest time between two bills that were made between these moments (epoch
        seconds).
        """
        return float(self._rows(_LONGEST_PAUSE, since, until)[0][0])

    def ends(self) -> Mapping[int, int]:
        """For each partition the offset up to which it is billed."""
        return dict(self._rows(_ENDS))

    def entries(self) -> Iterator[Entry]:
        """The bills, in the order of billing."""
        return map(Entry._make, self._rows(_ENTRIES))

    def highest_bills(self) -> list[tuple[str, int, int]]:
        """Client, clicks and charge of those who owe most."""
        return [(client, clicks, charge) for client, clicks, charge in self._rows(_BILLS)]

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _rows(self, statement: LiteralString, *parameters: object) -> list[Any]:
        import psycopg

        try:
            if self._connection is None:
                self._connection = connected(self._url)
                self._connection.read_only = True
            with self._connection.transaction():
                return self._connection.execute(statement, parameters).fetchall()
        except psycopg.errors.UndefinedTable:
            return [(0,)] if statement is _BILLED else []  # no candidate has made the ledger yet
        except psycopg.OperationalError as exc:
            self.close()
            raise went_away(exc) from exc
