"""A consumer of ours in a process of its own, to be killed: says what it is given, and never
finishes it.

python holder.py ADDRESS PATH LOCK_PATH
"""

from __future__ import annotations

import sys
import threading

from leaderq import connect
from leaderq.queues import DistributedQueue


def hold(value: bytes) -> None:
    """Tell, and keep."""
    print(value.decode(), flush=True)
    threading.Event().wait()


def main(address: str, path: str, lock_path: str) -> None:
    """Consume until killed."""
    DistributedQueue(
        connect(address, timeout_s=8.0), path, lock_path=lock_path, consumer=hold
    ).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
