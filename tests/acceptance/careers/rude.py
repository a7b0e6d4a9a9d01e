"""Careers of a rude user: none calls ``check()`` or looks at its term.

Whatever works for a term, children included, writes each effect as one JSON line, in one append, on
the clock that all processes of a host share. All of them go on until their time is over, or until
the file ``$HISTORY.over`` is there, so that a test can end what the program has left running.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from leaderq import AsyncLeaderCareer, AsyncTerm, LeaderCareer, Term
from leaderq.base.clock import now_s

HISTORY = Path(os.environ["HISTORY"])
OVER = Path(f"{HISTORY}.over")
GO = Path(f"{HISTORY}.go")
UNIT_S = 12.0
LONG_S = 60.0
STEP_S = 0.005
SIG_IGN = 1
NOBODY = 65534
FORK_TWICE = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)"

_history = os.open(HISTORY, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(what: str, term: int, by: str = "unit", **more: Any) -> None:
    line = {"at": now_s(), "what": what, "term": term, "by": by, "pid": os.getpid(), **more}
    os.write(_history, json.dumps(line).encode() + b"\n")


def work(by: str, term: int, seconds: float = UNIT_S) -> None:
    """One effect every few milliseconds, whoever leads."""
    end_s = now_s() + seconds
    while now_s() < end_s and not OVER.exists():
        note("effect", term, by)
        time.sleep(STEP_S)


def swallow(term: Term) -> None:
    """The work of a unit, which nothing that is raised in it ends."""
    end_s = now_s() + UNIT_S
    while now_s() < end_s and not OVER.exists():
        try:
            work("unit", term.number, end_s - now_s())
        except BaseException:
            continue


def program(by: str, term: int, *, first: str = "", seconds: float = UNIT_S) -> list[str]:
    """A command that works for ``term`` in a process of its own."""
    return [sys.executable, "-c", f"import rude\n{first}\nrude.work({by!r}, {term}, {seconds})"]


class Rude(LeaderCareer):
    """Says what it begins, and leaves the rest to its subclass."""

    name = "rude"

    def inaugurate(self, term: Term) -> None:
        note("inaugurate", term.number, unclean=term.unclean)

    def execute(self, term: Term) -> None:
        note("begin", term.number)
        self.unit(term)

    def unit(self, term: Term) -> None:
        work("unit", term.number)

    def handOver(self, term: Term) -> None:  # noqa: N802
        note("handOver", term.number, reason=term.reason.value if term.reason else None)


class LongUnits(Rude):
    """A unit takes 12 s."""


class TinyUnits(Rude):
    """A unit takes a millisecond, and is one effect."""

    def unit(self, term: Term) -> None:
        time.sleep(0.001)


class Deaf(Rude):
    """Nothing that is raised in a unit ends it; the worker ignores SIGTERM, and so does its
    child.
    """

    atomic = True

    def prepare(self) -> None:
        # From C: Python lets only the main thread set handlers; and after leaderq has set its own.
        ctypes.CDLL(None).signal(signal.SIGTERM, ctypes.c_void_p(SIG_IGN))

    def unit(self, term: Term) -> None:
        ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        self.child = subprocess.Popen(program("subprocess", term.number, first=ignoring))
        swallow(term)


class Children(Rude):
    """A unit is the work of three children: of ``subprocess``, of ``multiprocessing``, and a daemon
    that has forked twice and has a session of its own.
    """

    seconds = UNIT_S

    def begin_children(self, term: Term) -> None:
        forked = ("multiprocessing", term.number, self.seconds)
        multiprocessing.Process(target=work, args=forked).start()
        self.child = subprocess.Popen(program("subprocess", term.number, seconds=self.seconds))
        daemon = program("daemon", term.number, first=FORK_TWICE, seconds=self.seconds)
        subprocess.run(daemon, check=True)

    def unit(self, term: Term) -> None:
        self.begin_children(term)
        self.child.wait()
        for forked in multiprocessing.active_children():
            forked.join()


class GilHog(Rude):
    """Once told to go, one call in C holds the GIL for a whole unit, while its child works."""

    def unit(self, term: Term) -> None:
        note("effect", term.number)
        if GO.exists():
            ctypes.PyDLL(None).system(shlex.join(program("system", term.number)).encode())
            note("effect", term.number)
        time.sleep(STEP_S)


class NeverHandsOver(TinyUnits):
    """The hand-over does not come back, whatever is raised in it."""

    def handOver(self, term: Term) -> None:  # noqa: N802
        super().handOver(term)
        swallow(term)


class NeverPrepared(TinyUnits):
    def prepare(self) -> None:
        note("prepare", 0)
        time.sleep(LONG_S)


class NeverRetires(TinyUnits):
    def retire(self) -> None:
        time.sleep(LONG_S)


class LeavesAPool(TinyUnits):
    def prepare(self) -> None:
        self.pool = ThreadPoolExecutor(1)
        self.pool.submit(time.sleep, LONG_S)


class LeavingChildren(TinyUnits, Children):
    seconds = LONG_S

    def inaugurate(self, term: Term) -> None:
        super().inaugurate(term)
        self.begin_children(term)


class Unprivileged(TinyUnits):
    """The worker has become somebody else."""

    def prepare(self) -> None:
        os.setuid(NOBODY)


class AsyncRude(AsyncLeaderCareer):
    name = "rude"
    swallows: tuple[type[BaseException], ...] = ()

    async def inaugurate(self, term: AsyncTerm) -> None:
        note("inaugurate", term.number, unclean=term.unclean)

    async def execute(self, term: AsyncTerm) -> None:
        note("begin", term.number)
        await self.unit(term.number)

    async def unit(self, term: int) -> None:
        await self.acts(term)

    async def hand_over(self, term: AsyncTerm) -> None:
        note("handOver", term.number, reason=term.reason.value if term.reason else None)

    async def acts(self, term: int, by: str = "unit", step_s: float = STEP_S) -> None:
        end_s = now_s() + UNIT_S
        while now_s() < end_s and not OVER.exists():
            note("effect", term, by)
            with suppress(*self.swallows):
                await asyncio.sleep(step_s)


class AsyncSleeping(AsyncRude):
    """A coroutine calls ``time.sleep``, so nothing else runs on the loop."""

    async def unit(self, term: int) -> None:
        work("unit", term)


class AsyncSwallowing(AsyncRude):
    """No cancellation ends a unit, the thousand tasks that it leaves behind, or its second loop in
    a thread; all other threads of the default executor are blocked, and more calls wait.
    """

    atomic = True
    swallows = (asyncio.CancelledError,)

    async def unit(self, term: int) -> None:
        self.leaked = [asyncio.create_task(self.acts(term, "task", 5.0)) for _ in range(1000)]
        end_s = now_s() + UNIT_S

        def works() -> None:
            work("thread", term, end_s - now_s())

        own_loop = asyncio.to_thread(asyncio.run, self.acts(term, "loop"))
        blocked = [asyncio.to_thread(works) for _ in range(64)]
        await asyncio.gather(own_loop, *blocked, self.acts(term))


class AsyncForking(AsyncRude):
    """A coroutine forks; the child works, and goes back to its parent's loop."""

    async def unit(self, term: int) -> None:
        if not os.fork():
            work("fork", term)
            return
        await self.acts(term)
