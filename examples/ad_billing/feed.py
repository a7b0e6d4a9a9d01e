"""Feeds the topic ``clicks``: ``python -m ad_billing.feed [FILE]``.

Each record is one line of an access log: key = client, so that a client's clicks stay in order;
header ``number`` counts on from what the topic holds already, so that the ledger can be audited.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from leaderq import LeaderqError
from leaderq.kafka.topics import create_topics, end_offsets, produce

from .billing import NUMBER, TOPIC
from .traffic import client_of, generated, read

PARTITIONS = 4

Feed = tuple[bytes, bytes, list[tuple[str, bytes]]]


def numbered(lines: Iterable[str], *, start: int = 1) -> Iterator[Feed]:
    """``lines`` as records to produce, counted from ``start``."""
    for number, line in enumerate(lines, start):
        yield client_of(line).encode(), line.encode(), [(NUMBER, str(number).encode())]


def main() -> int:
    """Feed the topic; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ad_billing.feed", description="Feed an access log to the topic clicks."
    )
    parser.add_argument(
        "file", nargs="?", type=Path, help="access log to feed; without it one is made up"
    )
    parser.add_argument(
        "--records", type=int, help="how many to feed (default: the file once, or 8000 made up)"
    )
    parser.add_argument(
        "--kafka",
        default=os.environ.get("LEADERQ_KAFKA", "127.0.0.1:9092"),
        help="[env var: LEADERQ_KAFKA]",
    )
    given = parser.parse_args()
    try:
        lines = read(given.file, given.records) if given.file else generated(given.records or 8000)
        create_topics(given.kafka, {TOPIC: PARTITIONS})
        held = sum(end_offsets(given.kafka, TOPIC).values())
        fed = produce(given.kafka, TOPIC, numbered(lines, start=held + 1))
    except (OSError, ValueError, LeaderqError) as exc:
        print(f"feed: error: {exc}", file=sys.stderr)
        return 2
    print(f"fed {fed} records; {TOPIC} holds {held + fed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
