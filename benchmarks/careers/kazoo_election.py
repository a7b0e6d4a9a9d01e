"""The peer: kazoo's own ``Election``, doing what the ``Stamps`` career does. Leads until SIGUSR1,
then stands again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from kazoo.client import KazooClient

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def main(address: str, candidate: str, timeout_s: float, path: str) -> None:
    step_down = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: step_down.set())
    client = KazooClient(address, timeout=timeout_s)
    client.start()
    election = client.Election(path, candidate)
    terms = 0

    def lead() -> None:
        nonlocal terms
        terms += 1
        with open(os.environ["STAMPS"], "a") as stamps:  # noqa: PTH123
            stamps.write(f"inaugurate {candidate} {terms} {time.clock_gettime(_CLOCK):.6f}\n")
        step_down.wait()
        step_down.clear()

    while True:
        election.run(lead)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])
