"""One consumer in a process of its own, for ``queues.py``: says ``ready``, begins when told to,
ends with its stdin.

python queue_consumer.py ADDRESS PATH LOCK_PATH    (LOCK_PATH "": none)
"""

from __future__ import annotations

import sys

from leaderq import connect
from leaderq.queues import DistributedQueue


def main(address: str, path: str, lock_path: str) -> None:
    """Consume until stdin ends; then tell how many there were."""
    seen = 0

    def consume(value: bytes) -> None:
        nonlocal seen
        seen += 1

    with connect(address) as session:
        queue = DistributedQueue(session, path, lock_path=lock_path or None, consumer=consume)
        print("ready", flush=True)
        sys.stdin.readline()
        with queue:
            sys.stdin.read()
    print(seen, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
