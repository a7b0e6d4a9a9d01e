"""The settings that all servers of a simulated ensemble have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsembleSettings:
    """The configuration of the servers, and the world in which they live.

    ``now()`` is the time on the servers' own clock, in seconds. ``at(delay_s, act)`` starts a timer
    on it, which has ``cancel()``. ``delay(what)`` is how many seconds a message between two servers
    takes.
    """

    now: Callable[[], float]
    at: Callable[[float, Callable[[], None]], Any]
    delay: Callable[[str], float]
    wall_ms: Callable[[], int]
    tick_ms: int
    min_timeout_ms: int
    max_timeout_ms: int
    sync_limit: int
    version: tuple[int, ...]
    max_request_bytes: int
