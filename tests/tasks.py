"""Waiting in a test of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

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
