from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from mute import raising

from leaderq import errors, testing
from leaderq.threads import Listeners


@pytest.fixture
def listeners() -> Listeners[str]:
    return Listeners()


@pytest.fixture
def heard() -> list[str]:
    return []


def test_values_arrive_in_order_even_if_announced_from_within_a_listener(listeners, heard):
    def first(value: str) -> None:
        if value == "suspended":
            listeners.announce("lost")
            assert not heard  # left to the call under way

    listeners.add(first)
    listeners.add(heard.append)
    listeners.announce("suspended")
    assert heard == ["suspended", "lost"]


class Rude(BaseException):
    """Of a user's."""


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError, Rude])
def test_a_listener_that_raises_is_logged_and_the_others_still_hear(
    listeners, heard, error, caplog
):
    listeners.add(raising(error("bad listener")))
    listeners.add(heard.append)
    with caplog.at_level(logging.ERROR):
        listeners.announce("one")
        listeners.announce("two")
    assert heard == ["one", "two"]
    assert "listener failed" in caplog.text
    assert "bad listener" in caplog.text
    assert "value=one" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, errors.UnitAbandoned])
def test_what_strikes_a_listener_from_outside_is_raised_after_all_others_were_told(
    listeners, heard, error
):
    interrupt = raising(error())
    listeners.add(interrupt)
    listeners.add(heard.append)
    listeners.put("one")
    listeners.put("two")
    with pytest.raises(error):
        listeners.deliver()
    assert heard == ["one", "two"]
    with pytest.raises(error):
        listeners.call("now")
    assert heard.pop() == "now"
    listeners.remove(interrupt)
    listeners.announce("three")
    assert heard == ["one", "two", "three"]


def test_ctrl_c_between_two_calls_leaves_the_rest_to_the_next_delivery(listeners, heard):
    listeners.add(raising(ValueError("what is logged")))
    listeners.add(heard.append)
    handler = logging.Handler()
    handler.emit = raising(KeyboardInterrupt())
    log = logging.getLogger("leaderq.threads.listeners")
    log.addHandler(handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            listeners.announce("one")
    finally:
        log.removeHandler(handler)
    assert heard == []
    listeners.deliver()
    assert heard == ["one"]


def test_a_listener_added_twice_hears_once_and_a_removed_one_nothing(listeners, heard):
    listeners.add(heard.append)
    listeners.add(heard.append)
    listeners.announce("one")
    listeners.remove(heard.append)
    listeners.remove(print)
    listeners.announce("two")
    assert heard == ["one"]


def test_one_that_an_earlier_listener_removes_is_not_told(listeners, heard):
    listeners.add(lambda _: listeners.remove(heard.append))
    listeners.add(heard.append)
    listeners.announce("one")
    assert heard == []


def test_while_a_listener_runs_other_threads_announce_add_and_remove_without_waiting(listeners):
    heard: list[tuple[str, int]] = []

    def slow(value: str) -> None:
        heard.append((value, threading.get_ident()))
        if value == "one":
            other = threading.Thread(target=others_turn, daemon=True)
            other.start()
            other.join(30)
            assert not other.is_alive()

    def others_turn() -> None:
        listeners.announce("two")
        listeners.add(print)
        listeners.remove(print)

    listeners.add(slow)
    listeners.announce("one")
    here = threading.get_ident()
    assert heard == [("one", here), ("two", here)]


def test_values_of_many_threads_are_told_one_at_a_time_in_the_order_of_each_thread():
    listeners: Listeners[tuple[int, int]] = Listeners()
    heard: list[tuple[int, int]] = []
    at_once = threading.Lock()

    def hear(value: tuple[int, int]) -> None:
        assert at_once.acquire(blocking=False)
        heard.append(value)
        at_once.release()

    def announce(number: int) -> None:
        for count in range(300):
            listeners.announce((number, count))

    listeners.add(hear)
    threads = [threading.Thread(target=announce, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listeners.deliver()
    assert sorted(heard) == [(number, count) for number in range(4) for count in range(300)]
    for number in range(4):
        assert [count for who, count in heard if who == number] == list(range(300))


def test_a_thread_of_its_own_tells_all_in_order_and_then_that_they_were_told():
    told: list[int] = []
    heard: list[int] = []
    listeners: Listeners[int] = Listeners("ours", has_thread=True, on_told=told.extend)

    def hear(value: int) -> None:
        assert listeners.is_current
        assert len(told) == value - value % 2  # of those that were announced before it
        heard.append(value)

    def rude(value: int) -> None:
        # Of this thread: logged, as everything else.
        raise KeyboardInterrupt if value % 2 else errors.UnitAbandoned

    assert not listeners
    listeners.add(rude)
    listeners.add(hear)
    assert listeners
    listeners.announce(0, 1)
    testing.eventually(lambda: told == [0, 1])
    for value in range(2, 50, 2):
        listeners.announce(value, value + 1)
    testing.eventually(lambda: len(told) == 50)
    listeners.put(50)  # told before the thread ends, though nobody has woken it
    assert listeners.stop(30)
    assert told == heard == list(range(51))
    assert not listeners.is_current
    assert not Listeners[int]().is_current
    assert Listeners[int](has_thread=True).stop(0)
    assert Listeners[int]().stop(0)


def test_values_beyond_the_bound_are_dropped_and_counted_unless_they_are_owed():
    listeners: Listeners[int] = Listeners(most=2)
    heard: list[int] = []
    listeners.add(heard.append)
    for value in range(4):
        listeners.put(value)
    listeners.put(4, is_owed=True)
    listeners.deliver()
    assert (heard, listeners.untold) == ([0, 1, 4], 2)


def test_who_listens_for_a_class_hears_its_values_only_announced_or_called():
    listeners: Listeners[object] = Listeners()
    numbers: list[int] = []
    everything: list[object] = []
    listeners.add(numbers.append, int)
    listeners.add(everything.append)
    for value in (1, "two"):
        listeners.announce(value)
        listeners.call(value)
    listeners.remove(numbers.append)  # it was added for another class
    listeners.call(3)
    assert (numbers, everything) == ([1, 1, 3], [1, 1, "two", "two", 3])


def test_only_a_plain_function_can_listen():
    async def listen(value: str) -> None: ...

    with pytest.raises(errors.ConfigurationError):
        Listeners[str]().add(listen)


def test_an_interrupt_of_a_listeners_own_is_logged_where_no_ctrl_c_can_come(listeners, heard):
    listeners.add(raising(KeyboardInterrupt()))
    listeners.add(heard.append)
    other = threading.Thread(target=listeners.announce, args=("one",))
    other.start()
    other.join(30)
    assert heard == ["one"]


def test_listeners_that_are_equal_or_cannot_be_compared_are_told_apart(listeners, heard):
    class Equal:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, value: str) -> None:
            heard.append(self.name + value)

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None

    class Raising(Equal):
        def __eq__(self, other: object) -> bool:
            raise OSError

        def hear(self, value: str) -> None:
            heard.append(value)

    one, raising = Equal("one "), Raising("raising ")
    for listener in (one, Equal("two "), raising, raising.hear, raising.hear):
        listeners.add(listener)
    listeners.announce("a")
    assert heard == ["one a", "two a", "raising a", "a"]
    listeners.remove(one)
    listeners.remove(raising.hear)
    listeners.call("b")
    assert heard[4:] == ["two b", "raising b"]


@pytest.mark.parametrize("kind", [print, "Event", None])
def test_what_is_listened_for_is_a_class(listeners, kind):
    with pytest.raises(errors.ConfigurationError, match="give the class"):
        listeners.add(print, kind)
    listeners.add(print, int | str)


def test_a_class_that_cannot_be_asked_for_its_instances_keeps_no_value_from_the_others(
    listeners, heard
):
    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            raise OSError

    class Odd(metaclass=Meta): ...

    listeners.add(print, Odd)
    listeners.add(heard.append)
    listeners.call("one")
    listeners.announce("two")
    assert heard == ["one", "two"]
