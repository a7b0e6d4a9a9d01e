"""Errors of users: functions that raise one, and one whose text cannot be had, as when ``__str__``
reads what nobody has set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Mute(Exception):
    def __str__(self) -> str:
        return str(self.message)


TOLD = "Mute, which cannot be told: AttributeError"
"""What is said of it instead."""


def raising(error: BaseException) -> Callable[..., Any]:
    """Raise ``error``, whatever it is called with."""

    def act(*_: object) -> Any:
        raise error

    return act
