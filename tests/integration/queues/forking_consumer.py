"""A consumer that forks at its first item, and returns in the child too: ``python
forking_consumer.py ADDRESS LOCKS``. Prints each value that it is given, then how the child ended.
"""

from __future__ import annotations

import os
import sys

from leaderq.queues import TEXT, DistributedQueue
from leaderq.testing import eventually
from leaderq.zookeeper import connect

children: list[int] = []
seen: list[str] = []


def consume(value: str) -> None:
    os.write(1, value.encode() + b"\n")
    seen.append(value)
    if not children:
        children.append(os.fork())


def main(address: str, locks: str) -> None:
    session = connect(address)
    queue = DistributedQueue(
        session, "/q", consumer=consume, serializer=TEXT, lock_path=locks or None
    )
    queue.start()
    eventually(lambda: len(seen) == 9)
    _, status = os.waitpid(children[0], 0)
    queue.close()
    session.close()
    os.write(1, b"child %d\n" % status)


if __name__ == "__main__":
    main(*sys.argv[1:])
