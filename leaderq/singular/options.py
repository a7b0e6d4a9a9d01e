"""What a queue may be made with, and the listener that it has unless it is given one."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Callable
from typing import Any, TypedDict

from leaderq.errors import ConfigurationError, RequestCancelled


class Options(TypedDict, total=False):
    """The keywords of a queue, but for ``max_batch``, upon which the kind of its handler depends."""

    name: str | None
    capacity: int | None
    low: int | None
    wait_s: float
    deadline_s: float | None
    on_error: Callable[[Any, BaseException], object]


log = logging.getLogger(__name__)


def log_failure(request: Any, error: BaseException) -> None:
    """The listener unless another is given. What is cancelled by closing a queue is logged as one sentence elsewhere."""
    if not isinstance(error, RequestCancelled):
        log.error("a request was not applied: %s", reprlib.repr(request), exc_info=error)


def check(
    handler: object, capacity: int | None, low: int | None, wait_s: float, deadline_s: float | None, max_batch: int | None
) -> None:
    """All that is wrong with these, at once.

    :raises ConfigurationError: something is.
    """
    problems = []
    if not callable(handler):
        problems.append(f"handler={handler!r} cannot be called")
    if capacity is not None and capacity < 1:
        problems.append(f"capacity={capacity!r}: give 1 or more, or None for no bound")
    if low is not None and not 0 <= low < (capacity or 0):
        problems.append(f"low={low!r}: give 0 or more, and less than capacity")
    if not wait_s >= 0:
        problems.append(f"wait_s={wait_s!r}: give seconds, 0 for not at all, or math.inf for ever")
    if deadline_s is not None and not deadline_s >= 0:
        problems.append(f"deadline_s={deadline_s!r}: give seconds, or None for any")
    if max_batch is not None and max_batch < 1:
        problems.append(f"max_batch={max_batch!r}: give 1 or more, or None for one by one")
    if problems:
        raise ConfigurationError(*problems)
