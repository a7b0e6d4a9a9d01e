from __future__ import annotations

import asyncio
import math
from array import array
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from leaderq.base import arguments as args
from leaderq.errors import ConfigurationError


def plain(*_given: Any) -> None: ...


async def coroutine(*_given: Any) -> None: ...


def generator(*_given: Any) -> Any:
    yield


async def stream() -> Any:
    yield


class Callable_:  # noqa: N801 - an object that is callable
    def __call__(self) -> None: ...


class Async:
    async def __call__(self) -> None: ...

    async def method(self) -> None: ...


def test_all_problems_are_raised_at_once_and_none_is_none():
    args.require(None, args.unless(True, "never said"))
    with pytest.raises(ConfigurationError) as raised:
        args.require(args.at_least("a", 0, 1), None, args.unless(False, "b and c do not agree"))
    assert raised.value.problems == ("a=0: give 1 or more", "b and c do not agree")


@pytest.mark.parametrize(
    ("check", "good", "bad", "remedy"),
    [
        (partial(args.at_least, least=1), (1, 2), (0, None, "1"), "1 or more"),
        (partial(args.at_least, least=1.0), (1, 2.5, math.inf), (0, math.nan), "1.0 or more"),
        (partial(args.at_least, least=0, unit="seconds"), (0, 0.5), (-1,), "0 or more seconds"),
        (partial(args.at_least, least=1, or_none=""), (None, 1), (0,), "1 or more, or None"),
        (
            partial(args.at_least, least=1, unit="bytes", or_none="for no bound"),
            (None, 1),
            (0,),
            "1 or more bytes, or None for no bound",
        ),
        (args.above_0, (0.1, 7, 3e9), (0, math.nan, None), "more than 0"),
        (args.above_0, (), (math.inf, 1e300), "at most 3000000000"),
        (partial(args.above_0, unit="letters"), (1,), (-1,), "more than 0 letters"),
        (partial(args.between, least=2, most=4), (2, 3, 4), (1, 5, "3"), "2 to 4"),
        (
            args.timeout,
            (None, 0, 1.5, math.inf),
            (-0.1, "1", timedelta(1)),
            "seconds, 0 to not wait, or None for ever",
        ),
        (partial(args.instance, kind=int), (1,), ("1",), "int"),
        (partial(args.instance, kind=int | None), (1, None), ("1",), "int | None"),
    ],
)
def test_a_value_is_taken_or_refused_with_its_name_and_the_remedy(check, good, bad, remedy):
    assert [check("it", value) for value in good] == [None] * len(good)
    # neither is a number, nor too large
    numbers = () if "int" in remedy or "at most" in remedy else (True, math.nan)
    for value in (*bad, *numbers):
        assert check("it", value) == f"it={value!r}: give {remedy}"


@pytest.mark.parametrize("value", [1.5, 2.0, math.inf])
def test_what_is_counted_is_whole(value):
    said = f"it={value!r}: give a whole number, 1 or more"
    assert args.at_least("it", value, 1) == said
    assert args.at_least("it", value, 1, or_none="for all") == f"{said}, or None for all"


def test_a_long_value_is_cut_short():
    assert args.wanted("it", "x" * 500, False, "less") == f"it='{'x' * 99}: give less"


@pytest.mark.parametrize(
    ("value", "seconds"), [(0, 0.0), (1.5, 1.5), (timedelta(minutes=2), 120.0), (3e9, 3e9)]
)
def test_a_time_is_taken_as_seconds(value, seconds):
    assert args.in_seconds("it", value) == seconds
    assert type(args.in_seconds("it", value)) is float


@pytest.mark.parametrize("value", [-1, 3e9 + 1, True, None, math.nan, timedelta(seconds=-1), "1"])
def test_what_is_not_a_time_is_refused(value):
    with pytest.raises(ConfigurationError, match=r"it=.*: give seconds from 0 to 3000000000"):
        args.in_seconds("it", value)


def test_a_text_is_one_that_utf_8_can_hold():
    found = [args.is_text(one) for one in ("", "näher", "\ud800", b"", None)]
    assert found == [True, True, False, False, False]


PLAIN = [plain, len, int, lambda: 1, [].append, Callable_, Callable_(), Async, partial(plain)]


@pytest.mark.parametrize("value", PLAIN)
def test_what_does_its_work_when_called_is_taken(value):
    assert args.plain_function("it", value) is None
    problem = args.coroutine_function("it", value)
    assert problem == f"it is {value!r}; give a function made with 'async def'"


@pytest.mark.parametrize("value", [coroutine, Async(), Async().method, partial(partial(coroutine))])
def test_a_coroutine_function_is_told_from_a_plain_one(value):
    assert args.coroutine_function("it", value) is None
    problem = args.plain_function("it", value)
    what = getattr(value, "__qualname__", None) or repr(value)
    how = "calling it would not run it; give a plain function"
    assert problem == f"it is {what}, a coroutine function: {how}"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (generator, "generator, a generator function"),
        (partial(generator), ", a generator function"),
        (stream, "stream, an asynchronous generator function"),
        (None, "None, which cannot be called; give a function"),
        ("text", "'text', which cannot be called; give a function"),
    ],
)
def test_what_does_nothing_when_called_is_refused(value, kind):
    assert kind in (args.plain_function("it", value) or "")
    assert args.coroutine_function("it", value)
    assert (args.plain_function("it", value, or_none=True) is None) is (value is None)


def test_a_value_is_finished_and_work_that_nobody_will_do_is_refused_and_closed():
    for value in (None, 5, [1], (), "text", range(3)):
        args.require_finished(value, "it")
    made, loop = generator(), asyncio.new_event_loop()
    for value in (coroutine(), made, stream(), Future(), loop.create_future()):
        with pytest.raises(args.NotAPlainFunction, match="it returned"):
            args.require_finished(value, "it")
    assert made.gi_frame is None
    loop.close()


def test_bytes_are_what_any_buffer_holds_copied_unless_it_cannot_change():
    data, numbers = b"data", bytearray(b"ab")
    assert args.bytes_of(data) is data
    found = [args.bytes_of(each) for each in (numbers, memoryview(numbers), array("B", numbers))]
    numbers[:] = b"cd"
    assert found == [b"ab"] * 3
    assert {type(each) for each in found} == {bytes}
    assert [args.bytes_of(each) for each in (None, "text", 7, [1])] == [None] * 4


class Rude:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError

    def method(self) -> None: ...


def test_functions_are_told_apart_whatever_their_objects_say_of_being_equal() -> None:
    one, other = Rude(), Rude()
    lists: list[list[Any]] = [[], []]
    known = {args.identity_of(each) for each in (one, one.method, plain, lists[0].append)}
    for same in (one, one.method, plain, lists[0].append):
        assert args.identity_of(same) in known
    for different in (other, other.method, generator, lists[1].append, lists[0].pop):
        assert args.identity_of(different) not in known


def test_several_values_may_come_from_anywhere_but_not_out_of_one():
    for given in ([], (1,), {1}, iter("ab"), range(2)):
        assert args.several("items", given, "values") is given
    for one in ("ab", b"ab", bytearray(2), memoryview(b"ab"), {"a": 1}, None, 5):
        with pytest.raises(ConfigurationError, match=r"items=.*: give a list"):
            args.several("items", one, "values")
