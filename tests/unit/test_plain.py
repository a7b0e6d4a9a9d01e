"""Callables that look like functions and do nothing when they are called."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

from leaderq.plain import NotAPlainFunction, require_plain_function


async def coroutine(value: Any) -> None:
    pass


def generator(value: Any) -> Iterator[int]:
    yield 1


async def asynchronous_generator(value: Any) -> AsyncIterator[int]:
    yield 1


class WithAsyncCall:
    async def __call__(self, value: Any) -> None:
        pass

    async def method(self, value: Any) -> None:
        pass


class WithCall:
    def __call__(self, value: Any) -> None:
        pass

    def method(self, value: Any) -> None:
        pass


@pytest.mark.parametrize(
    "value",
    [
        coroutine,
        generator,
        asynchronous_generator,
        partial(coroutine, 1),
        partial(partial(generator), 1),
        WithAsyncCall(),
        WithAsyncCall().method,
        None,
        "text",
    ],
    ids=range(9),
)
def test_what_runs_nothing_when_it_is_called_is_refused_with_its_name(value: Any) -> None:
    with pytest.raises(NotAPlainFunction, match=r"^process is"):
        require_plain_function(value, "process")


@pytest.mark.parametrize(
    "value",
    [print, len, int, lambda: 1, [].append, WithCall(), WithCall().method, partial(print, 1)],
)
def test_what_is_done_when_it_returns_is_taken(value: Any) -> None:
    require_plain_function(value, "process")
