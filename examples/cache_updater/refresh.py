"""Refreshes a cache whenever a page changes. For all changes that come while a page is refreshed,
one more refresh is enough.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter

from changes import changes
from pages import Cache, Origin
from saving import simulated

from leaderq.coalescing import AsyncQueueCoordinator, EnqueueOutcome


class CacheUpdater:
    """Refreshes the pages of a cache: one refresh of a page runs, one waits, more are useless."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(cover=cache.refresh)
        self.outcomes: Counter[EnqueueOutcome] = Counter()

    async def page_changed(self, page: str) -> None:
        """Return when the page in the cache is at least as new as this call, or when a waiting
        refresh will make it so.
        """
        async with self._coordinator.hold(page) as token:
            if token:
                await self._cache.refresh(page)
            self.outcomes[token.outcome] += 1


async def replay(pages: list[str], rate: float, origin: Origin, updater: CacheUpdater) -> float:
    """Change the pages one after the other, at this rate; return the changes per second that were
    really made.
    """
    began = time.perf_counter()
    tasks = []
    for number, page in enumerate(pages):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
        origin.change(page)
        tasks.append(asyncio.create_task(updater.page_changed(page)))
    real_rate = len(pages) / (time.perf_counter() - began)
    await asyncio.gather(*tasks)
    return real_rate


def main() -> None:
    """Replay the changes, and say what was saved."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", nargs="?", help="an access log; without it requests are made up")
    parser.add_argument(
        "--rate", type=float, default=1000.0, help="changes per second (default: %(default)s)"
    )
    parser.add_argument(
        "--read-s",
        type=float,
        default=0.2,
        help="seconds that one refresh takes (default: %(default)s)",
    )
    parser.add_argument(
        "--count", type=int, default=8000, help="how many changes (default: %(default)s)"
    )
    given = parser.parse_args()
    try:
        pages = list(changes(given.log, given.count))
    except OSError as exc:
        parser.error(f"{given.log} cannot be read: {exc.strerror}")
    if not pages:
        parser.error(f"{given.log} holds no line of an access log")

    origin = Origin(given.read_s)
    cache = Cache(origin)
    updater = CacheUpdater(cache)
    real_rate = asyncio.run(replay(pages, given.rate, origin, updater))

    arrivals = ((number / real_rate, page) for number, page in enumerate(pages))
    expected = simulated(arrivals, given.read_s)[EnqueueOutcome.DECLINE] / len(pages)
    at_once, waited, saved = (
        updater.outcomes[one]
        for one in (EnqueueOutcome.ACCEPT, EnqueueOutcome.BLOCK, EnqueueOutcome.DECLINE)
    )
    share = f"{saved / len(pages):.1%} (expected: {expected:.1%})"
    print(
        f"pages changed        {len(pages)} times, {real_rate:.0f} a second, {len(origin.versions)}"
        " different ones"
    )
    print(f"refreshes that ran   {origin.reads}: {at_once} at once, {waited} after waiting")
    print(f"refreshes saved      {saved}, {share}")
    print(f"stale pages          {len(cache.stale)}")


if __name__ == "__main__":
    main()
