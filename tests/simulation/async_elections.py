"""Lives of an election whose candidates have a career of coroutines, and a rude one."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from leaderq import AsyncLeaderCareer, AsyncTerm
from leaderq.base import clock
from leaderq.errors import LeaderqError
from leaderq.testing.nemesis.history import What
from leaderq.testing.simulation.chronicle import Chronicle
from leaderq.testing.simulation.scheduler import World
from simulation.programs import note_of

_STEP_S = 0.05


class AsyncRudeCareer(AsyncLeaderCareer):
    """Acts without looking at its term, and is rude in a way drawn anew for each unit."""

    def __init__(self, chronicle: Chronicle, world: World, _life: object) -> None:
        self._chronicle = chronicle
        self._world = world

    def note(self, what: What, term: AsyncTerm, **values: str) -> None:
        note_of(self._chronicle, what, term, **values)

    async def inaugurate(self, term: AsyncTerm) -> None:
        self.note(What.INAUGURATED, term)

    async def execute(self, term: AsyncTerm) -> None:
        self.note(What.UNIT, term)
        ways = (self.acts, self.blocks, self.swallows, self.leaks, self.has_threads, self.has_units)
        drawn = self._world.faults()
        # Of the object: a class attribute would be that of the other candidates, too.
        vars(self)["atomic"] = drawn * 100 % 1 < 0.5
        await ways[int(drawn * len(ways))](term, 0.1 + 2 * (drawn * 10 % 1) ** 2)

    async def hand_over(self, term: AsyncTerm) -> None:
        self.note(What.HANDED_OVER, term, why=term.reason.value if term.reason else "")

    async def acts(self, term: AsyncTerm, seconds: float) -> None:
        until_s = clock.now_s() + seconds
        while clock.now_s() < until_s:
            self.note(What.EFFECT, term)
            await asyncio.sleep(_STEP_S)

    async def blocks(self, term: AsyncTerm, seconds: float) -> None:
        """As ``time.sleep`` in a coroutine."""
        self.blocks_thread(term, 4 * seconds)

    def blocks_thread(self, term: AsyncTerm, seconds: float) -> None:
        until_s = clock.now_s() + seconds
        while clock.now_s() < until_s:
            self.note(What.EFFECT, term)
            clock.sleep(_STEP_S)

    async def swallows(self, term: AsyncTerm, seconds: float) -> None:
        until_s = clock.now_s() + 4 * seconds
        while clock.now_s() < until_s:
            with suppress(asyncio.CancelledError):
                await self.acts(term, until_s - clock.now_s())

    async def leaks(self, term: AsyncTerm, seconds: float) -> None:
        leaked = self.swallows if seconds < 1 else self.acts
        self.kept = [asyncio.create_task(leaked(term, 60.0)) for _ in range(3)]
        await asyncio.sleep(seconds / 10)

    async def has_threads(self, term: AsyncTerm, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(6):  # more than the pool has threads
            loop.run_in_executor(None, self.blocks_thread, term, 2 * seconds)
        await asyncio.to_thread(self.blocks_thread, term, 2 * seconds)

    async def has_units(self, term: AsyncTerm, seconds: float) -> None:
        async def one() -> None:
            async with term.unit():
                await self.acts(term, seconds / 3)
                with suppress(LeaderqError):
                    await term.write([])

        await asyncio.gather(one(), one(), one())
        await term.wait()
