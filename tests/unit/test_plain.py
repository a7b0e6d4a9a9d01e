"""What is callable, and whether a call of it does the work."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from leaderq.plain import (
    NotAPlainFunction,
    require_coroutine_function,
    require_finished,
    require_plain_function,
)


def plain() -> None: ...


async def coroutine() -> None: ...


def generator() -> Any:
    yield


async def stream() -> Any:
    yield


class Callable_:  # noqa: N801 - an object that is callable
    def __call__(self) -> None: ...

    def method(self) -> None: ...


class Async:
    async def __call__(self) -> None: ...

    async def method(self) -> None: ...


TAKEN = [plain, len, int, lambda: 1, [].append, Callable_, Callable_(), Callable_().method, Async]


@pytest.mark.parametrize("value", [*TAKEN, partial(plain)])
def test_what_does_its_work_when_called_is_taken(value: Any) -> None:
    require_plain_function(value, "it")
    with pytest.raises(NotAPlainFunction, match="it is .*async def"):  # noqa: RUF043
        require_coroutine_function(value, "it")


@pytest.mark.parametrize("value", [coroutine, Async(), Async().method, partial(partial(coroutine))])
def test_a_coroutine_function_is_told_from_a_plain_one(value: Any) -> None:
    require_coroutine_function(value, "it")
    with pytest.raises(NotAPlainFunction, match="a coroutine function"):
        require_plain_function(value, "it")


@pytest.mark.parametrize(
    ("value", "kind"),
    [(generator, "a generator function"), (stream, "an asynchronous generator function")],
)
def test_generator_functions_do_nothing_when_called(value: Any, kind: str) -> None:
    with pytest.raises(NotAPlainFunction, match=f"it is {value.__name__}, {kind}"):
        require_plain_function(value, "it")
    with pytest.raises(NotAPlainFunction):
        require_coroutine_function(value, "it")


def test_what_has_no_name_is_shown() -> None:
    with pytest.raises(NotAPlainFunction, match=r"it is functools\.partial\(.*, a coroutine"):
        require_plain_function(partial(coroutine), "it")


@pytest.mark.parametrize("value", [None, 5, "text"])
def test_what_cannot_be_called_is_refused(value: Any) -> None:
    with pytest.raises(NotAPlainFunction, match="cannot be called"):
        require_plain_function(value, "it")
    with pytest.raises(NotAPlainFunction, match="async def"):
        require_coroutine_function(value, "it")


@pytest.mark.parametrize("value", [None, 5, [1], (), "text", range(3)])
def test_a_value_is_finished(value: Any) -> None:
    require_finished(value, "it")


def test_work_that_nobody_will_do_is_refused_and_closed() -> None:
    made = generator()
    for value in (coroutine(), made, stream(), Future()):
        with pytest.raises(NotAPlainFunction, match="it returned"):
            require_finished(value, "it")
    assert made.gi_frame is None


def test_an_awaitable_that_is_no_coroutine_is_refused() -> None:
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(NotAPlainFunction, match="it returned"):
            require_finished(loop.create_future(), "it")
    finally:
        loop.close()
