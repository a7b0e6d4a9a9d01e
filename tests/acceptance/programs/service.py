"""Renders pages that a queue names, on asyncio; of many who want one page, one renders it."""

from __future__ import annotations

import asyncio
import sys

from leaderq import AsyncQueueCoordinator, connect
from leaderq.queues import TEXT, AsyncQueue, DistributedQueue

rendering: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
rendered: list[str] = []


@rendering.coalesced(key=lambda page: page)
async def render(page: str) -> None:
    await asyncio.sleep(0.01)
    rendered.append(page)


async def main(address: str, path: str, count: int) -> None:
    with connect(address) as session:
        queue = DistributedQueue(session, path, serializer=TEXT, lock_path=f"{path}-locks")
        async with AsyncQueue(queue) as pages:
            for number in range(count):
                await pages.put(f"page-{number % 3}")
            working = set()
            for _ in range(count):
                async with await pages.take() as item:
                    working.add(asyncio.create_task(render(item.value)))
            await asyncio.gather(*working)
    print(f"{count} wanted, {len(rendered)} rendered, {len(set(rendered))} pages")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
