"""Sends the mails that others put into a queue; run several, kill any of them, and every mail is
still sent.

python mailer.py [NAME]
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from leaderq import LeaderqError, connect
from leaderq.queues import TEXT, DistributedQueue, Retry


def main(name: str) -> None:
    """Work on the queue /mail until Ctrl-C."""

    def send(mail: str) -> None:
        if mail.startswith("bad"):
            raise ValueError(f"nobody lives at {mail!r}")
        print(f"{name} sends {mail!r}", flush=True)

    is_over = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: is_over.set())
    # With a lock path a mail is deleted only after it was sent, and goes to another mailer if this
    # one dies.
    policy = Retry(attempts=3, first_s=0.2)
    with (
        connect(os.environ.get("LEADERQ_ZOOKEEPER", "127.0.0.1:2181")) as session,
        DistributedQueue(
            session, "/mail", consumer=send, serializer=TEXT, lock_path="/mail-locks", retry=policy
        ),
    ):
        print(f"{name} waits for mails", flush=True)
        is_over.wait()


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "mailer")
    except LeaderqError as exc:
        sys.exit(f"mailer: error: {exc}")
