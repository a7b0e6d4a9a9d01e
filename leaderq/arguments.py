"""What arguments must be: times, texts, types."""

from __future__ import annotations

from datetime import timedelta
from types import UnionType
from typing import Any

from leaderq.errors import ConfigurationError

Seconds = float | timedelta
MAX_S = 3e9
"""The longest time: a century."""


def checked_s(what: str, value: Seconds) -> float:
    """A time in seconds.

    :raises ConfigurationError: it is negative, longer than a century, or not a time.
    """
    if not is_time(value):
        raise ConfigurationError(f"{what}={value!r}: give seconds from 0 to {MAX_S:.0e}")
    return float(value.total_seconds() if isinstance(value, timedelta) else value)


def checked_type(what: str, value: object, kind: type | UnionType) -> None:
    """:raises ConfigurationError: it is of another."""
    if not isinstance(value, kind):
        raise ConfigurationError(f"{what}={value!r:.100}: give {getattr(kind, '__name__', kind)}")


def is_time(value: object) -> bool:
    seconds: Any = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return is_number and 0 <= seconds <= MAX_S


def is_text(value: object) -> bool:
    """Whether it is one that UTF-8 can hold: without lone surrogates."""
    return isinstance(value, str) and value.encode(errors="replace").decode() == value
