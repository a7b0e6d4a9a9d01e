"""Leadership in a ``with`` block and in a loop, in somebody's own program, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress

import pytest

from leaderq import Deposed
from leaderq.election import Operator
from leaderq.term import Reason
from leaderq.testing import eventually

WAIT_S = 60.0


@pytest.fixture
def session(opened):
    """Of a time-out that is longer than anything here may be without a processor."""
    return opened(timeout_s=30.0)


@pytest.fixture
def seen(opened):
    """The career ``c`` as an operator sees it."""
    return Operator(opened(), "c")


def led_by_another(opened) -> str:
    """Whether the next one leads at once: with a session of its own, far from its time-out."""
    with opened(timeout_s=30.0).leadership("c", id="next", timeout_s=WAIT_S) as term:
        return term.candidate


def test_the_body_leads_and_operators_see_it(session, seen, caplog):
    with (
        caplog.at_level(logging.INFO, "leaderq.events"),
        session.leadership("c", id="a", timeout_s=WAIT_S) as term,
    ):
        term.write([])
        eventually(lambda: seen.view().stage == "execution")
        assert (seen.view().leader, term.number, term.reason) == ("a", 1, None)
    view = seen.view()
    assert (view.leader, view.candidates, view.reason) == (None, (), "withdrawn")
    assert term.reason is Reason.WITHDRAWN
    with pytest.raises(Deposed):
        term.check()
    lines = caplog.text
    assert "won a term career=c id=a" in lines
    assert "term ended career=c id=a" in lines


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError, "failed"), (KeyboardInterrupt, "withdrawn"), (SystemExit, "withdrawn")],
)
def test_whatever_the_body_raises_goes_on_and_the_term_is_given_back(
    session, seen, opened, error, reason
):
    with pytest.raises(error), session.leadership("c", id="a", timeout_s=WAIT_S):
        raise error
    assert seen.view().reason == reason
    assert led_by_another(opened) == "next"


def test_a_fork_that_leaves_the_body_releases_nothing(session, seen):
    block = session.leadership("c", id="a", timeout_s=WAIT_S)
    with block as term:
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                block.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(pid, 0)
        term.write([])
        assert seen.view().leader == "a"


# ---- asyncio ------------------------------------------------------------------------------------


def test_tasks_lead_one_after_the_other_and_the_loop_goes_on(session):
    leading, order = set(), []

    async def lead(name: str) -> None:
        async with session.leadership("c", id=name, timeout_s=WAIT_S) as term:
            leading.add(name)
            assert len(leading) == 1
            await asyncio.sleep(0.05)
            term.check()
            leading.discard(name)
            order.append(name)

    async def both() -> None:
        await asyncio.wait_for(asyncio.gather(lead("a"), lead("b")), WAIT_S)

    asyncio.run(both())
    assert sorted(order) == ["a", "b"]


def test_a_task_that_is_cancelled_as_it_wins_releases_the_term(session, seen):
    async def lead() -> None:
        async with session.leadership("c", id="a"):
            pytest.fail("the body began")

    async def cancelled() -> None:
        task = asyncio.create_task(lead())
        await asyncio.sleep(0)
        while seen.view().stage != "execution":  # blocks the loop: the task cannot go on
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    eventually(lambda: seen.view().leader is None)
    assert seen.view().candidates == ()
