"""A refresher that shares its work with others through ZooKeeper: run several, and only one of
them refreshes a page at a time.

The cache is in ZooKeeper here (znodes below /cache), so that it can be written with the fence. If a
refresher was frozen and replaced, it cannot overwrite what its successor has written.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

from changes import changes

from leaderq import LeaderqError, connect
from leaderq.coalescing import DistributedQueueCoordinator, EnqueueOutcome
from leaderq.errors import TokenOver
from leaderq.zookeeper import Session, SetData

_AT_ONCE = 16
_COUNT = 400


class SharedUpdater:
    """Refreshes pages, one process at a time."""

    def __init__(self, session: Session, name: str) -> None:
        self._session = session
        self._name = name
        self._coordinator = DistributedQueueCoordinator(session, "/cache-updater")

    def page_changed(self, page: str) -> EnqueueOutcome:
        """Refresh the page, unless another refresh waits already."""
        place = f"/cache/{quote(page, safe='')}"
        self._session.ensure_path(place)
        with self._coordinator.enqueue(page) as token:
            if token:
                try:
                    token.write(
                        [SetData(place, f"refreshed by {self._name}, run {token.number}".encode())]
                    )
                except TokenOver as over:
                    print(f"{self._name}: {over}", flush=True)
            return token.outcome


def main(name: str, log: str | None) -> None:
    """Work on the first few hundred changes, sixteen at a time."""
    address = os.environ.get("LEADERQ_ZOOKEEPER", "127.0.0.1:2181")
    with connect(address) as session, ThreadPoolExecutor(_AT_ONCE) as pool:
        updater = SharedUpdater(session, name)
        outcomes = list(pool.map(updater.page_changed, changes(log, _COUNT)))
    saved = outcomes.count(EnqueueOutcome.DECLINE)
    print(
        f"{name}: {len(outcomes)} changes, {len(outcomes) - saved} refreshes, {saved} saved",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="what this refresher is called")
    parser.add_argument("log", nargs="?", help="an access log; without it changes are made up")
    asked = parser.parse_args()
    try:
        main(asked.name, asked.log)
    except (OSError, LeaderqError) as exc:
        sys.exit(f"together: error: {exc}")
