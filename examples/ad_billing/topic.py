"""Creates the topic ``clicks`` if it is not there: ``python -m ad_billing.topic``."""

from __future__ import annotations

import argparse
import os
import sys

from leaderq import LeaderqError
from leaderq.kafka.topics import create_topics

from .billing import TOPIC
from .feed import PARTITIONS


def main() -> int:
    """Create the topic; return 0 if it exists, 2 if it cannot be created."""
    parser = argparse.ArgumentParser(
        prog="python -m ad_billing.topic", description="Create the topic clicks."
    )
    parser.add_argument(
        "--kafka",
        default=os.environ.get("LEADERQ_KAFKA", "127.0.0.1:9092"),
        help="[env var: LEADERQ_KAFKA]",
    )
    given = parser.parse_args()
    try:
        create_topics(given.kafka, {TOPIC: PARTITIONS})
    except LeaderqError as exc:
        print(f"topic: error: {exc}", file=sys.stderr)
        return 2
    print(f"topic {TOPIC} is there, with {PARTITIONS} partitions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
