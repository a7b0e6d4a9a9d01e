"""Writes numbered words to the Kafka topic ``words``: ``python feed.py [COUNT]``."""

import argparse
import os
import sys

from leaderq import LeaderqError
from leaderq.kafka.topics import create_topics, produce

KAFKA = os.environ.get("LEADERQ_KAFKA", "127.0.0.1:9092")

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=20)
    count = parser.parse_args().count
    try:
        create_topics(KAFKA, {"words": 2})
        produce(KAFKA, "words", ((None, b"word-%d" % number) for number in range(1, count + 1)))
    except LeaderqError as exc:
        sys.exit(f"feed: error: {exc}")
    print(f"fed {count} words")
