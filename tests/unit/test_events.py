"""Events and who listens to them."""

from __future__ import annotations

import asyncio

import pytest

from leaderq.errors import UnitAbandoned
from leaderq.events import Event, EventBus, Withdrawn


class Rude(BaseException):
    """Of a user's."""


def raising(error: BaseException):
    def listener(_event: Event) -> None:
        raise error

    return listener


def published(error: BaseException) -> list[Event]:
    """What a listener hears behind one that raises."""
    heard: list[Event] = []
    bus = EventBus()
    bus.subscribe(Event, raising(error))
    bus.subscribe(Event, heard.append)
    try:
        bus.publish(Withdrawn("c", "a"))
    finally:
        assert len(heard) == 1
    return heard


@pytest.mark.parametrize(
    "error", [ValueError("no ink"), SystemExit(3), Rude(), asyncio.CancelledError()]
)
def test_what_a_listener_raises_reaches_neither_the_publisher_nor_the_other_listeners(
    error, caplog
):
    assert published(error)
    assert "listener failed" in caplog.text
    assert "value=Withdrawn(" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UnitAbandoned()])
def test_what_strikes_a_listener_from_outside_is_raised_once_all_were_told(error):
    with pytest.raises(type(error)):
        published(error)
