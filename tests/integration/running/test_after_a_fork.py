from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from forks import in_child

from leaderq import Candidate, LeaderCareer, Runner, Term
from leaderq.coalescing import DistributedQueueCoordinator
from leaderq.config import Settings
from leaderq.dyno import DynoQueue
from leaderq.election import Observer
from leaderq.errors import SessionClosed
from leaderq.queues import DistributedQueue, SimpleDistributedQueue
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session, SessionState


class Idle(LeaderCareer):
    def execute(self, term: Term) -> None:
        term.wait(60)


def leads_in_a_task(session: Session) -> None:
    async def lead() -> None:
        async with session.leadership("c"):
            pass

    asyncio.run(lead())


USES: dict[str, Callable[[Session], Any]] = {
    "leadership": lambda session: session.leadership("c").__enter__(),
    "leadership in time": lambda session: session.leadership("c", timeout_s=2.0).__enter__(),
    "leadership in a task": leads_in_a_task,
    "terms": lambda session: next(session.terms("c")),
    "stand": lambda session: Candidate(session, "c", id="child").stand(),
    "await_term": lambda session: Candidate(session, "c", id="child").await_term(),
    "run": lambda session: Runner(Idle(), session, settings=Settings(career="c")).run(),
    "view": lambda session: Observer(session, "c").wait_until(lambda _: False, timeout_s=60),
    "take": lambda session: DistributedQueue(session, "/q").__enter__().take(),
    "simple take": lambda session: SimpleDistributedQueue(session, "/q").take(),
    "receive": lambda session: DynoQueue(session, "/d").pop(timeout_s=None),
    "enqueue": lambda session: DistributedQueueCoordinator(session, "/k").enqueue("k", None),
}


def test_a_child_is_refused_at_once_with_the_reason(opened):
    session = opened()

    def refused() -> None:
        assert session.state is SessionState.CLOSED
        for use in USES.values():
            began_s = time.monotonic()
            with pytest.raises(SessionClosed, match="connect again after the fork"):
                use(session)
            assert time.monotonic() - began_s < 20 * patience()  # not when its 60 s are over

    in_child(refused)
    assert session.state is SessionState.CONNECTED
    with session.leadership("c"):
        pass


def test_a_session_that_its_owner_has_closed_is_refused_at_once(opened):
    session = opened()
    session.close()
    for use in ("leadership", "terms", "stand", "await_term", "run"):
        with pytest.raises(SessionClosed, match="closed by its owner"):
            USES[use](session)
