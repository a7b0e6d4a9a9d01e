"""Nobody acts beside the next leader, whatever a server has not yet told the servers' leader.

The leader stands beside a follower, the next one beside the servers' leader. Before leases rested
on proofs (``leaderq/zookeeper/proof.py``), half of these rounds failed. What does not ask is ended
by its guardian (``tests/acceptance/running/test_rude_careers.py``).

``LEADERQ_TEST_CHANGES`` is the number of rounds of each case.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any
from uuid import uuid4

import pytest
from electorate import Electorate, term_of
from terms import is_on

from leaderq import Session
from leaderq.base.clock import now_s
from leaderq.term import OpenTerm
from leaderq.testing import ZooKeeperEnsemble, ZooKeeperServer, eventually
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Check

TIMEOUT_S = 4.0
STALL_S = 0.55 * TIMEOUT_S


class Loss(Enum):
    """How a follower is lost after a stall."""

    DEAF_HEAD = "the servers' leader hears nothing more of it when it goes on"
    STOPPED = "it was stopped itself, and is again when it has answered"


class Servers:
    """Three linked servers with ``ticks`` ticks in T. A context manager."""

    def __init__(self, ticks: int) -> None:
        # Who is cut off serves its clients for longer than any session lives.
        self.tick_s = TIMEOUT_S / ticks
        limits = {"initLimit": "60", "syncLimit": "60", "forceSync": "no"}
        settings = {"tickTime": f"{self.tick_s * 1000:.0f}", **limits}
        self.ticks = ticks
        self.ensemble = ZooKeeperEnsemble(linked=True, settings=settings)

    def __enter__(self) -> Servers:
        self.ensemble.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ensemble.stop()

    def choose(self) -> tuple[ZooKeeperServer, ZooKeeperServer, ZooKeeperServer]:
        """The leader of the servers, the follower to lose, and the other one."""
        eventually(lambda: len(self.ensemble.followers) == 2)
        one, other = self.ensemble.followers
        return self.ensemble.leader, one, other

    def lose(self, loss: Loss, beside: Session) -> None:
        """Stall the first follower, let it go on, and lose it as soon as ``beside``, a session with
        it, has had a late answer.
        """
        head, follower, _ = self.choose()
        way = self.ensemble.link(head, follower)
        is_stop = loss is Loss.STOPPED
        follower.freeze() if is_stop else way.stall()
        time.sleep(STALL_S / 2)
        late = beside.multi_async([Check("/")])
        time.sleep(STALL_S / 2)
        if loss is Loss.DEAF_HEAD:
            self.ensemble.link(follower, head).lose()
        follower.thaw() if is_stop else way.release()
        late.result(5 * patience())
        follower.freeze() if is_stop else way.cut()


class Believer:
    """Asks a term each 2 ms whether it may act. A context manager."""

    def __init__(self, term: OpenTerm) -> None:
        self._term = term
        self._passed_s: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def passed_since(self, at_s: float) -> float:
        """For how long after ``at_s`` it passed, in seconds."""
        return max([0.0, *(passed_s - at_s for passed_s in self._passed_s)])

    def __enter__(self) -> Believer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._is_over.wait(0.002):
            asked_s = now_s()
            if is_on(self._term):
                self._passed_s.append(asked_s)


def overlap_s(servers: Servers, root: str, loss: Loss) -> float:
    """One stall and loss; for how long ``check()`` passed in the old term beside the new one."""
    head, follower, _ = servers.choose()
    with contextlib.ExitStack() as stack:
        electorate = Electorate(head.address, root)
        stack.callback(electorate.close)
        a = electorate.candidate("a", address=follower.address, timeout_s=TIMEOUT_S)
        b = electorate.candidate("b", address=head.address)
        believer = stack.enter_context(Believer(electorate.lead(a)))
        electorate.wait_in_line(b)
        beside = electorate.session(address=follower.address)
        stack.callback(servers.ensemble.heal)
        pool = stack.enter_context(ThreadPoolExecutor(1))
        leading = pool.submit(lambda: (term_of(b), now_s()))
        servers.lose(loss, beside)
        _, led_s = leading.result()
        time.sleep(TIMEOUT_S / 3)
        return believer.passed_since(led_s)


CHANGES = int(os.environ.get("LEADERQ_TEST_CHANGES", "1"))


def in_long(value: object) -> Any:
    """A case that only ``make test-long`` runs, or all tests of this file."""
    return pytest.param(value, marks=pytest.mark.long)


LOSSES = pytest.mark.parametrize(
    "loss", [Loss.DEAF_HEAD, in_long(Loss.STOPPED)], ids=lambda loss: loss.name.lower()
)
pytestmark = pytest.mark.timeout(120 + 20 * CHANGES)


@pytest.fixture(scope="module", params=[6, in_long(3), in_long(12)], ids="T of {} ticks".format)
def servers(request) -> Iterator[Servers]:
    with Servers(request.param) as made:
        yield made


@LOSSES
def test_check_does_not_pass_beside_the_next_leader(servers, loss):
    late_s = [overlap_s(servers, f"/t-{uuid4().hex}", loss) for _ in range(CHANGES)]
    assert not any(late_s), (
        f"{servers.ticks} ticks: check() passed beside the next leader, {late_s}"
    )
