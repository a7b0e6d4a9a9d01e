"""Waiting in a test of tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from leaderq.base.clock import now_s
from leaderq.testing.waiting import patience


async def until(fact: Callable[[], object]) -> None:
    """Wait for a fact, looked at on the loop, without holding the loop up. (What is asked of a
    thread comes back by ``call_soon_threadsafe``, with which a test may play.)
    """
    ends_s = now_s() + 60.0 * patience()
    while not fact():
        assert now_s() < ends_s, "it never came true"
        await asyncio.sleep(0.001)


@asynccontextmanager
async def busy_default_executor() -> AsyncIterator[None]:
    """The loop's default executor has one thread, which a rude program holds up meanwhile."""
    loop, is_over = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    blocked = loop.run_in_executor(None, is_over.wait)
    try:
        yield
    finally:
        is_over.set()
        await blocked
