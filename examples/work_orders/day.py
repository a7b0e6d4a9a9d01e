"""A whole day at once: ``python -m work_orders.day [COUNT]``.

Feeds so many rules and starts two allocators. After a third of the orders the leadership is
transferred; after two thirds the leader's process is killed. At the end the orders are audited.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from leaderq import connect
from leaderq.election import Operator
from leaderq.errors import NoNode
from leaderq.zookeeper import Session

from .allocator import ORDERS
from .audit import audit, summary
from .feed import feed
from .rules import ZOOKEEPER, made_up, run

PATIENCE_S = 60.0


def await_that(what: str, is_so: Callable[[], object]) -> None:
    """Return when it is so. Raises ``TimeoutError`` after a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.05)


def order_count(session: Session) -> int:
    """How many orders there are by now."""
    try:
        return len(session.children(ORDERS))
    except NoNode:
        return 0


def candidate(name: str) -> subprocess.Popen[bytes]:
    """An allocator, in a process of its own."""
    options = f"--id {name} --session-timeout-s 4 --log-level error"
    command = [sys.executable, "-m", "leaderq", "run", "work_orders:Allocator", *options.split()]
    return subprocess.Popen(command, cwd=Path(__file__).parents[1])


def main(wanted: int) -> int:
    """Run the day; raises ``TimeoutError`` if it does not end well."""
    with ExitStack() as stack:
        session = stack.enter_context(connect(ZOOKEEPER))
        allocator = Operator(session, "allocator")
        for name in "ab":
            process = candidate(name)
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
        await_that(
            "a and b stand",
            lambda: len(allocator.view().candidates) == 2 and allocator.view().leader,
        )
        print(
            f"{allocator.view().leader} allocates; {feed(session, made_up(wanted))} rules fed",
            flush=True,
        )

        await_that("a third is ordered", lambda: order_count(session) >= wanted / 3)
        former = allocator.view()
        (successor,) = set(former.candidates) - {former.leader}
        allocator.transfer(successor)
        print(
            f"{order_count(session)} ordered: transferred from {former.leader} to {successor}",
            flush=True,
        )

        await_that("two thirds are ordered", lambda: order_count(session) >= wanted * 2 / 3)
        await_that("somebody leads", lambda: allocator.view().pid)
        leading = allocator.view()
        if leading.pid is not None:
            os.kill(leading.pid, signal.SIGKILL)
        print(f"{order_count(session)} ordered: {leading.leader} killed", flush=True)

        await_that("all is ordered", lambda: order_count(session) >= wanted)
        await_that("the audit finds nothing", lambda: not audit(session, wanted))
        print(summary(session))
    print("every rule has one order, and no constraint is broken")
    return 0


if __name__ == "__main__":
    run(main, "day")
