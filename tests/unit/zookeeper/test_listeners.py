from __future__ import annotations

import logging

import pytest

from leaderq.zookeeper.session import Listeners, SessionState


def test_states_arrive_in_order_even_if_announced_from_within_a_listener() -> None:
    listeners, heard = Listeners(), []

    def first(state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            listeners.announce(SessionState.LOST)

    listeners.add(first)
    listeners.add(heard.append)
    listeners.announce(SessionState.SUSPENDED)
    assert heard == [SessionState.SUSPENDED, SessionState.LOST]


def test_a_listener_that_raises_is_logged_and_the_others_still_hear(caplog: pytest.LogCaptureFixture) -> None:
    listeners, heard = Listeners(), []

    def bad(state: SessionState) -> None:
        raise ValueError("bad listener")

    listeners.add(bad)
    listeners.add(heard.append)
    with caplog.at_level(logging.ERROR):
        listeners.announce(SessionState.CONNECTED)
    assert heard == [SessionState.CONNECTED]
    assert "bad listener" in caplog.text


def test_a_listener_added_twice_hears_once_and_a_removed_one_nothing() -> None:
    listeners, heard = Listeners(), []
    listeners.add(heard.append)
    listeners.add(heard.append)
    listeners.announce(SessionState.CONNECTED)
    listeners.remove(heard.append)
    listeners.remove(print)
    listeners.announce(SessionState.LOST)
    assert heard == [SessionState.CONNECTED]
