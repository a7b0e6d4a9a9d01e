"""Compares the ledger with what was fed: ``python -m ad_billing.audit``.

The proof does not rest on Kafka's offsets: every record carries the number its feeder gave it, and each number must stand in the
ledger once.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from leaderq import LeaderqError
from leaderq.kafka.topics import end_offsets

from .billing import AdBilling, ledger_path


class Entry(NamedTuple):
    """What an audit looks at in one bill."""

    number: int | None
    partition: int
    offset: int
    term: int
    billed_at: float


@dataclass(frozen=True)
class Audit:
    """What is in the ledger of ``fed`` records; all but the first two must be 0.

    ``unknown``: bills whose number nobody fed. ``disordered``: bills entered before a bill of a lower offset of their
    partition. ``usurped``: bills entered by a term after a newer one had entered some.
    """

    fed: int
    billed: int
    twice: int
    skipped: int
    unknown: int
    disordered: int
    usurped: int

    @property
    def problems(self) -> list[str]:
        """What is wrong, one sentence each; empty if every record was billed exactly once and in order."""
        found = {
            "records were billed twice": self.twice,
            "records were skipped": self.skipped,
            "bills are for records that nobody fed": self.unknown,
            "bills are out of the order of their partition": self.disordered,
            "bills were added by a term after a newer one": self.usurped,
        }
        return [f"{count} {what}" for what, count in found.items() if count]


def audit(entries: Iterable[Entry], fed: int) -> Audit:
    """The audit of ``entries``, which are in the order of billing, against the numbers 1 to ``fed``."""
    times = [0] * (fed + 1)
    unknown = disordered = usurped = newest = billed = 0
    reached: dict[int, int] = {}
    for entry in entries:
        billed += 1
        if entry.number is not None and 1 <= entry.number <= fed:
            times[entry.number] += 1
        else:
            unknown += 1
        disordered += entry.offset <= reached.get(entry.partition, -1)
        usurped += entry.term < newest
        reached[entry.partition] = max(entry.offset, reached.get(entry.partition, -1))
        newest = max(newest, entry.term)
    return Audit(
        fed=fed,
        billed=billed,
        twice=sum(count > 1 for count in times),
        skipped=times[1:].count(0),
        unknown=unknown,
        disordered=disordered,
        usurped=usurped,
    )


def entries_of(path: Path) -> Iterator[Entry]:
    """The bills in the ledger at ``path``, in the order of billing."""
    with closing(reading(path)) as connection:
        # rowid: the order of insertion, as bills are never deleted
        rows = connection.execute('SELECT number, partition, "offset", term, billed_at FROM billed ORDER BY rowid')
        yield from map(Entry._make, rows)


def reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; raises ``sqlite3.Error`` if there is no such ledger."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)


def _print_bills(path: Path) -> None:
    with closing(reading(path)) as connection:
        print(f"{'CLIENT':<18}{'CLICKS':>8}{'CHARGE':>12}")
        for client, clicks, charge in connection.execute("SELECT * FROM bills ORDER BY charge DESC LIMIT 5"):
            print(f"{client:<18}{clicks:>8}{charge / 1e6:>12.2f}")


def main() -> int:
    """Audit; gives 0 if all is well, 1 if not, 2 if it could not be found out."""
    parser = argparse.ArgumentParser(
        prog="python -m ad_billing.audit", description="Compare the ledger with the topic clicks."
    )
    parser.add_argument(
        "--kafka", default=os.environ.get("LEADERQ_KAFKA", "127.0.0.1:9092"), help="[env var: LEADERQ_KAFKA]"
    )
    given = parser.parse_args()
    try:
        fed = sum(end_offsets(given.kafka, AdBilling.topics).values())
        result = audit(entries_of(ledger_path()), fed)
        _print_bills(ledger_path())
    except (sqlite3.Error, LeaderqError) as exc:
        print(f"audit: error: {exc} (ledger: {ledger_path()})", file=sys.stderr)
        return 2
    print(f"fed {result.fed}, billed {result.billed}, billed twice {result.twice}, skipped {result.skipped}")
    for problem in result.problems:
        print(f"WRONG: {problem}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
