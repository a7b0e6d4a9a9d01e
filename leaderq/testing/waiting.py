"""Waits for facts, which is the only way in which leaderq's tests wait.

``LEADERQ_TEST_PATIENCE`` (a factor, default 1) stretches every wait, for slow machines.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TypeVar

from leaderq.base.arguments import at_least, plain_function, require, require_finished
from leaderq.errors import ConfigurationError

T = TypeVar("T")


def patience() -> float:
    """The factor that stretches all waits.

    :raises ConfigurationError: ``LEADERQ_TEST_PATIENCE`` is not a number above 0.
    """
    text = os.environ.get("LEADERQ_TEST_PATIENCE", "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise ConfigurationError(
            f"LEADERQ_TEST_PATIENCE is {text!r}; it must be a number above 0, such as 2.5"
        )
    return factor


def eventually(
    fact: Callable[[], T], *, timeout_s: float = 30.0, interval_s: float = 0.02, message: str = ""
) -> T:
    """Call ``fact`` until it returns something true, and return that.

    An exception from ``fact`` counts as "not yet". After the time is over, ``fact`` is called once
    more, so a test does not fail because its own process was not scheduled.

    :raises AssertionError: ``timeout_s`` (times the patience) has passed; it names ``message`` and
        the last value, and chains the last error.
    :raises ConfigurationError: an argument cannot be used; ``fact`` returns a coroutine or a
        generator, which is always true and does nothing.
    """
    __tracebackhide__ = True  # pytest then shows the caller's line
    require(
        plain_function("fact", fact),
        at_least("timeout_s", timeout_s, 0, "seconds"),
        at_least("interval_s", interval_s, 0, "seconds"),
    )
    what = message or getattr(fact, "__name__", "the fact")
    deadline = time.monotonic() + timeout_s * patience()
    while True:
        is_last = time.monotonic() >= deadline
        error: Exception | None = None
        value: T | None = None
        try:
            value = fact()
        except Exception as exc:  # noqa: BLE001 - whatever the fact raises is reported if it is the last answer
            error = exc
        if value:
            if isinstance(value, Coroutine | Generator | AsyncGenerator):
                require_finished(value, what)
            return value
        if is_last:
            seen = f"it raised {error!r}" if error is not None else f"its last value was {value!r}"
            raise AssertionError(
                f"{what}: not true within {timeout_s * patience():g} s; {seen}"
            ) from error
        time.sleep(interval_s)
