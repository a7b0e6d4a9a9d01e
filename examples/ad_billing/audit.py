"""Compares the ledger with what was fed: ``python -m ad_billing.audit``.

The proof does not rest on Kafka's offsets: every record carries the number its feeder gave it, and
each number must stand in the ledger once. A ledger in PostgreSQL may be audited while it is
written: what the topic held at the beginning is waited for.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from leaderq import LeaderqError
from leaderq.kafka.topics import end_offsets

from .billing import DEFAULT_LEDGER, LEDGER_VARIABLE, TOPIC
from .ledger import Entry
from .shared_ledger import is_shared
from .shared_totals import Totals

_BILLED_WITHIN_S = 30.0
_LOOK_S = 0.2


@dataclass(frozen=True)
class Audit:
    """What is in the ledger of ``fed`` records; all but the first two must be 0.

    ``unknown``: bills whose number nobody fed. ``disordered``: bills entered before a bill of a
    lower offset of their partition. ``usurped``: bills entered by a term after a newer one had
    entered some.
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
        """What is wrong, one sentence each; empty if every record was billed exactly once and in
        order.
        """
        found = {
            "records were billed twice": self.twice,
            "records were skipped": self.skipped,
            "bills are for records that nobody fed": self.unknown,
            "bills are out of the order of their partition": self.disordered,
            "bills were added by a term after a newer one": self.usurped,
        }
        return [f"{count} {what}" for what, count in found.items() if count]


def audit(entries: Iterable[Entry], fed: int) -> Audit:
    """The audit of ``entries``, which are in the order of billing, against the numbers 1 to
    ``fed``.
    """
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
        rows = connection.execute(
            'SELECT number, partition, "offset", term, billed_at FROM billed ORDER BY rowid'
        )
        yield from map(Entry._make, rows)


def reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write; raises ``sqlite3.Error`` if there is no such ledger."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)


def audit_places(entries: Iterable[Entry], ends: Mapping[int, int]) -> Audit:
    """The audit of a ledger that is still written, up to the offsets ``ends`` of the partitions
    (pure).

    A record is skipped if its offset is missing, and billed twice if its number, or its place, is
    there twice.
    """
    places: Counter[tuple[int, int]] = Counter()
    numbers: Counter[int] = Counter()
    kept: list[Entry] = []
    for entry in entries:
        if entry.offset < ends.get(entry.partition, 0):
            kept.append(entry)
            places[entry.partition, entry.offset] += 1
            numbers.update(() if entry.number is None else (entry.number,))
    fed = sum(ends.values())
    twice = max(sum(count > 1 for count in each.values()) for each in (places, numbers))
    in_order = audit(kept, fed)
    return replace(in_order, twice=twice, skipped=fed - len(places), unknown=0)


def await_billed(reached: Callable[[], Mapping[int, int]], ends: Mapping[int, int]) -> None:
    """Wait, within bounds, until all before ``ends`` is billed; what is not by then, the audit
    calls skipped.
    """
    give_up_s = time.monotonic() + _BILLED_WITHIN_S
    while time.monotonic() < give_up_s:
        now = reached()
        if all(now.get(partition, 0) >= end for partition, end in ends.items()):
            return
        time.sleep(_LOOK_S)


def _print_bills(bills: Iterable[tuple[str, int, int]]) -> None:
    print(f"{'CLIENT':<18}{'CLICKS':>8}{'CHARGE':>12}")
    for client, clicks, charge in bills:
        print(f"{client:<18}{clicks:>8}{charge / 1e6:>12.2f}")


def _file_audited(path: Path, ends: Mapping[int, int]) -> Audit:
    result = audit(entries_of(path), sum(ends.values()))
    with closing(reading(path)) as connection:
        _print_bills(connection.execute("SELECT * FROM bills ORDER BY charge DESC LIMIT 5"))
    return result


def _database_audited(url: str, ends: Mapping[int, int]) -> Audit:
    totals = Totals(url)
    await_billed(totals.ends, ends)
    _print_bills(totals.highest_bills())
    return audit_places(totals.entries(), ends)


def main() -> int:
    """Audit; return 0 if all is well, 1 if not, 2 if that could not be found out."""
    parser = argparse.ArgumentParser(
        prog="python -m ad_billing.audit", description="Compare the ledger with the topic clicks."
    )
    parser.add_argument(
        "--kafka",
        default=os.environ.get("LEADERQ_KAFKA", "127.0.0.1:9092"),
        help="[env var: LEADERQ_KAFKA]",
    )
    given = parser.parse_args()
    ledger = os.environ.get(LEDGER_VARIABLE) or DEFAULT_LEDGER
    try:
        ends = end_offsets(given.kafka, TOPIC)
        result = (
            _database_audited(ledger, ends)
            if is_shared(ledger)
            else _file_audited(Path(ledger), ends)
        )
    except (sqlite3.Error, LeaderqError) as exc:
        print(f"audit: error: {exc} (ledger: {ledger})", file=sys.stderr)
        return 2
    print(
        f"fed {result.fed}, billed {result.billed}, billed twice {result.twice}, skipped"
        f" {result.skipped}"
    )
    for problem in result.problems:
        print(f"WRONG: {problem}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
