"""Refuses what is callable but never does its work when it is simply called."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from concurrent.futures import Future
from functools import partial
from typing import Any

from leaderq.errors import ConfigurationError


class NotAPlainFunction(ConfigurationError):
    """A function was wanted, and what was given cannot be called, or does nothing when called."""


def require_plain_function(value: object, what: str) -> None:
    """Refuse ``value`` unless a call of it does the work: ``what`` names the parameter.

    A class, a bound method, a ``partial`` and an object with ``__call__`` will do. A coroutine
    function or a generator function would only make an object that nobody runs.

    :raises NotAPlainFunction: it cannot be called, or is a coroutine or generator function.
    """
    if not callable(value):
        raise NotAPlainFunction(f"{what} is {value!r}, which cannot be called; give a function")
    if kind := _kind(value):
        name = getattr(value, "__qualname__", None) or repr(value)
        raise NotAPlainFunction(
            f"{what} is {name}, {kind}: calling it would not run it; give a plain function"
        )


def require_coroutine_function(value: object, what: str) -> None:
    """Refuse ``value`` unless a call of it returns a coroutine: ``what`` names the parameter.

    :raises NotAPlainFunction: it is anything but an ``async def`` function, method or ``partial``.
    """
    if not callable(value) or _kind(value) != _COROUTINE:
        raise NotAPlainFunction(f"{what} is {value!r}; give a function made with 'async def'")


def require_finished(returned: object, what: str) -> None:
    """Refuse the return value of ``what`` if it is work that nobody will do or wait for: an
    awaitable, a generator, a future.

    :raises NotAPlainFunction: it is one.
    """
    if isinstance(returned, _UNFINISHED):
        if isinstance(returned, Coroutine | Generator):
            returned.close()  # otherwise Python warns that it was never awaited
        raise NotAPlainFunction(
            f"{what} returned {returned!r}, whose work nobody would do or wait for; "
            "do the work before returning, with asyncio.run, list(...) or result()"
        )


_UNFINISHED = (Awaitable, Generator, AsyncGenerator, Future)
_COROUTINE = "a coroutine function"


def _kind(value: Any) -> str:
    while isinstance(value, partial):
        value = value.func
    if not (inspect.isroutine(value) or inspect.isclass(value)):
        value = getattr(type(value), "__call__", value)  # noqa: B004 - an object that is callable
    if inspect.iscoroutinefunction(value):
        return _COROUTINE
    if inspect.isasyncgenfunction(value):
        return "an asynchronous generator function"
    return "a generator function" if inspect.isgeneratorfunction(value) else ""
