"""Asking at the beginning of a scope, and dequeuing at its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from leaderq.coalescing.token import Key, Token
from leaderq.coalescing.waiting import leave_after

if TYPE_CHECKING:
    from leaderq.coalescing.coordinator import QueueCoordinator

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")


class Hold(Generic[Key]):
    """``with Hold(...) as token: if token: ...``. May be entered again once it was left, not within itself."""

    __slots__ = ("_coordinator", "_key", "_token", "_value", "_wait_s")

    def __init__(self, coordinator: QueueCoordinator[Key], key: Key, value: Any, wait_s: float | None) -> None:
        self._coordinator = coordinator
        self._key = key
        self._value = value
        self._wait_s = wait_s
        self._token: Token[Key] | None = None

    def __enter__(self) -> Token[Key]:
        """Ask, and wait if that is the answer.

        :raises WaitTimedOut: its turn did not come in time.
        :raises WouldDeadlock: the caller works on the key itself.
        :raises CoordinatorClosed: nothing runs any more.
        """
        # Made before it is asked with, and asked for within "try": an interrupt at any point finds the token, and gives it back.
        token = self._token = self._coordinator.token_for(self._key, self._value)
        try:
            self.__class__ = _Entered
            self._coordinator.admit_and_wait(token, self._wait_s)
            return token
        except BaseException:
            self._leave(token)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._leave(self._token, error)
        except BaseException:
            self._leave(self._token)
            raise

    def _leave(self, token: Token[Key] | None, error: BaseException | None = None) -> None:
        if token is not None:
            leave_after(error, token)
        self.__class__ = Hold


class _Entered(Hold[Key]):
    """A scope between its entry and its exit. An interrupt that strikes at the very entry of ``__exit__``, where nothing can
    catch it, leaves it so; then the finalizer gives the key back. No other scope has a finalizer, for one swallows
    interrupts."""

    __slots__ = ()

    def __del__(self) -> None:
        if self._token is not None and self._token.is_unfinished:
            self._token.stripe.lose(self._token)


def coalesced(
    coordinator: QueueCoordinator[Key], key: Callable[P, Key], share: bool, declined: D
) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """See :meth:`~leaderq.coalescing.coordinator.QueueCoordinator.coalesced`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R | D]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R | D:
            whose = key(*args, **kwargs)
            if share:
                return coordinator.run(whose, lambda: function(*args, **kwargs))
            with coordinator.hold(whose) as token:
                return function(*args, **kwargs) if token else declined

        return call

    return decorate
