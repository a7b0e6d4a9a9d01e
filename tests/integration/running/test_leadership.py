"""Leadership in a ``with`` block in somebody's own program, on a real ZooKeeper. How bodies end,
and tasks that lead: ``tests/simulation/test_runners.py``.
"""

from __future__ import annotations

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
