"""Writes numbered words to the Kafka topic ``words``: ``python feed.py [HOW_MANY]``."""

import os
import sys

from leaderq.kafka.topics import create_topics, produce

KAFKA = os.environ.get("LEADERQ_KAFKA", "127.0.0.1:9092")

if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    create_topics(KAFKA, {"words": 2})
    produce(KAFKA, "words", ((None, f"word-{number}".encode()) for number in range(1, count + 1)))
    print(f"fed {count} words")
