"""Waiting for one's turn: the part that all forms of waiting share, and the thread's."""

from __future__ import annotations

import time
from typing import Any

from leaderq.coalescing.bells import ThreadBell
from leaderq.coalescing.token import Stage, Token
from leaderq.errors import CoordinatorClosed, WaitTimedOut


class Deadline:
    """The end of a wait, on the machine's own clock: a wait is real even where a test's clock is not."""

    __slots__ = ("_end_s", "wait_s")

    def __init__(self, wait_s: float | None) -> None:
        self.wait_s = wait_s
        self._end_s = None if wait_s is None else time.monotonic() + wait_s

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, 0 at the least; ``None`` without an end."""
        return None if self._end_s is None else max(0.0, self._end_s - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.remaining_s == 0.0


def await_turn(token: Token[Any], deadline: Deadline) -> None:
    """Block this thread until the token is not pending any more.

    :raises WaitTimedOut: the deadline came first; the token does not wait any more.
    :raises CoordinatorClosed: the coordinator was closed meanwhile.
    """
    bell = token.bell
    while token.stage.is_pending and isinstance(bell, ThreadBell):
        bell.wait(deadline.remaining_s)
        if deadline.is_over:
            give_up(token, deadline)
        else:
            look_again(token)
    refuse_if_abandoned(token)


def look_again(token: Token[Any]) -> None:
    """A ring may come before its reason, if whoever rang was interrupted in between; then the reason is brought about
    now."""
    if token.stage.is_pending:
        token.stripe.tend(token.key)


def give_up(token: Token[Any], deadline: Deadline) -> None:
    """The deadline has come: wait no more, unless the wait is over already.

    :raises WaitTimedOut: it did not.
    """
    token.stripe.withdraw(token)
    if token.stage is Stage.WITHDRAWN:
        raise WaitTimedOut(token.key, waited_s=deadline.wait_s or 0.0, covers=token.covers)


def refuse_if_abandoned(token: Token[Any]) -> None:
    """:raises CoordinatorClosed: the token waited when the coordinator was closed."""
    if token.stage is Stage.ABANDONED:
        raise CoordinatorClosed(f"key {token.key!r}: the coordinator was closed while this request waited")


def leave_after(error: BaseException | None, token: Token[Any]) -> None:
    """The scope of a request ends. A generator or coroutine that is closed may be so by the garbage collector, at any
    moment, even while its own thread holds the stripe's lock."""
    if isinstance(error, GeneratorExit):
        token.stripe.lose(token)
    else:
        token.stripe.leave(token)
