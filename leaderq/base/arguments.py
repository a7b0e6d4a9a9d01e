"""Checks of arguments, all in one style.

A check is given the name of an argument and its value. It returns ``None``, or what is wrong: a
sentence that names both and says what to give instead. :func:`require` raises all sentences at
once, so that a user who made three mistakes reads about all of them::

    require(
        at_least("workers", workers, 1),
        timeout("timeout_s", timeout_s),
        plain_function("key", key),
    )
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Coroutine,
    Generator,
    Hashable,
    Iterable,
    Mapping,
)
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from types import BuiltinMethodType, MethodType, UnionType
from typing import Any, TypeGuard, TypeVar

from leaderq.errors import ConfigurationError

T = TypeVar("T")
Problem = str | None
Seconds = float | timedelta
MAX_S = 3e9
"""The longest time: a century."""
LAST_MS = 253_402_300_799_999
"""The end of the year 9999, after which calendars have no time."""


def require(*problems: Problem) -> None:
    """Return if there are no problems.

    :raises ConfigurationError: there are some; the error has the sentences of all.
    """
    if found := [problem for problem in problems if problem is not None]:
        raise ConfigurationError(*found)


def unless(holds: bool, problem: str) -> Problem:
    """Return ``problem`` unless ``holds``; for conditions on several arguments together."""
    return None if holds else problem


def wanted(name: str, value: object, holds: bool, remedy: str) -> Problem:
    """Return ``None`` if ``holds``, else a sentence with ``name`` and ``value`` that asks for
    ``remedy``.
    """
    return None if holds else f"{name}={value!r:.100}: give {remedy}"


# -- numbers and times -----------------------------------------------------------------------------


def at_least(
    name: str, value: object, least: float, unit: str = "", *, or_none: Problem = None
) -> Problem:
    """Check that ``value`` is a number of ``least`` or more. If ``or_none`` is a text, ``None`` is
    allowed, too; the sentence then says "or None", and that text. If ``least`` is an ``int``, and
    the unit is not seconds, ``value`` must be an ``int``.
    """
    remedy = f"{least} or more {unit}".rstrip()
    is_fit = is_number(value) and value >= least
    is_count = isinstance(least, int) and unit != "seconds"
    if is_fit and is_count and not isinstance(value, int):
        is_fit, remedy = False, f"a whole number, {remedy}"
    if or_none is not None:
        remedy = f"{remedy}, or None {or_none}".rstrip()
        if value is None:
            return None
    return wanted(name, value, is_fit, remedy)


def above_0(name: str, value: object, unit: str = "") -> Problem:
    """Check that ``value`` is a time above 0, and not longer than waits can be."""
    is_too_long = is_number(value) and value > MAX_S
    holds = is_number(value) and value > 0 and not is_too_long
    bound = f"at most {MAX_S:.0f}" if is_too_long else "more than 0"
    return wanted(name, value, holds, f"{bound} {unit}".rstrip())


def between(name: str, value: object, least: float, most: float) -> Problem:
    return wanted(name, value, is_number(value) and least <= value <= most, f"{least} to {most}")


def timeout(name: str, value: object) -> Problem:
    """Check that ``value`` is a time-out: 0 seconds or more, or ``None``."""
    holds = value is None or (is_number(value) and value >= 0)
    return wanted(name, value, holds, "seconds, 0 to not wait, or None for ever")


def in_seconds(name: str, value: Seconds) -> float:
    """Return the time in seconds.

    :raises ConfigurationError: it is negative, longer than a century, or not a time.
    """
    if not is_time(value):
        require(wanted(name, value, False, f"seconds from 0 to {MAX_S:.0f}"))
    return float(value.total_seconds() if isinstance(value, timedelta) else value)


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_time(value: object) -> bool:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return is_number(seconds) and 0 <= seconds <= MAX_S


# -- texts and types -------------------------------------------------------------------------------


def instance(name: str, value: object, kind: type | UnionType) -> Problem:
    return wanted(name, value, isinstance(value, kind), getattr(kind, "__name__", str(kind)))


def is_text(value: object) -> bool:
    """Whether ``value`` is a text that UTF-8 can encode: one without lone surrogates."""
    return isinstance(value, str) and value.encode(errors="replace").decode() == value


# -- functions -------------------------------------------------------------------------------------


def plain_function(name: str, value: object, *, or_none: bool = False) -> Problem:
    """Check that ``value`` is a function whose call does the work; with ``or_none``, ``None`` is
    allowed, too.

    A class, a bound method, a ``partial`` and an object with ``__call__`` are allowed. A coroutine
    function or a generator function would only make an object that nobody runs.
    """
    if value is None and or_none:
        return None
    if not callable(value):
        return f"{name} is {value!r}, which cannot be called; give a function"
    if kind := _kind(value):
        title = getattr(value, "__qualname__", None) or repr(value)
        return f"{name} is {title}, {kind}: calling it would not run it; give a plain function"
    return None


def method_problem(name: str, value: object, *methods: str) -> Problem:
    """Check that ``value`` has these methods, and that a call of each does the work."""
    for method in methods:
        if problem := plain_function(f"{name}.{method}", getattr(value, method, None)):
            return problem
    return None


def coroutine_function(name: str, value: object) -> Problem:
    """Check that ``value`` is an ``async def`` function, method or ``partial``, whose call returns
    a coroutine.
    """
    return unless(
        _kind(value) == _COROUTINE, f"{name} is {value!r}; give a function made with 'async def'"
    )


def identity_of(function: Any) -> Hashable:
    """What tells functions apart, whatever ``==`` of their objects says: two of a dataclass may be
    equal, and ``==`` may raise. A method of one object is the same however often it is looked up.
    """
    if isinstance(function, MethodType):
        return id(function.__self__), id(function.__func__)
    return function if isinstance(function, BuiltinMethodType) else id(function)


class NotAPlainFunction(ConfigurationError):
    """A function of the user returned work that nobody would do, such as a coroutine: give a plain
    function.
    """


def require_finished(returned: object, what: str) -> None:
    """Refuse the return value of ``what`` if it is work that nobody will do or wait for: an
    awaitable, a generator, a future.

    :raises NotAPlainFunction: ``returned`` is such work.
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
    if not inspect.isroutine(value):
        value = getattr(type(value), "__call__", value)  # noqa: B004 - an object that is callable
    if inspect.iscoroutinefunction(value):
        return _COROUTINE
    if inspect.isasyncgenfunction(value):
        return "an asynchronous generator function"
    return "a generator function" if inspect.isgeneratorfunction(value) else ""


def several(name: str, given: Iterable[T], of: str) -> Iterable[T]:
    """Return ``given``, unless it is one value where several are wanted: a text, bytes or a mapping
    can be iterated, too, and its letters, numbers or keys would be taken for the values.

    :raises ConfigurationError: it is one, or cannot be iterated.
    """
    value: object = given
    is_one = isinstance(value, (str, bytes, bytearray, memoryview, Mapping))
    is_fit = isinstance(value, Iterable) and not is_one
    require(wanted(name, given, is_fit, f"a list, or another iterable, of {of}"))
    return given


def bytes_of(data: Any) -> bytes | None:
    """The bytes that ``data`` is; ``None`` if it is no bytes. A buffer is copied, because its owner
    may use it again.
    """
    if type(data) is bytes:
        return data
    try:
        return bytes(memoryview(data))
    except TypeError:
        return None
