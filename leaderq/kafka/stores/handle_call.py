"""The call of ``handle`` to which an effect belongs.

An effect that waits for its batch (a message, an operation on znodes) is accepted only between the
beginning and the return of a call of ``handle``, on that call's thread, or wherever its context was
carried to: to tasks of asyncio that it starts, and by ``contextvars.copy_context().run`` to other
threads. Anywhere else it would be committed with the offsets of another batch, or dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token

from leaderq.errors import ConfigurationError

Effect = Callable[[], object]
"""Puts one effect of one call of ``handle`` among those that a store commits next."""


class HandleCall:
    """One call of ``handle``, as a context manager around it."""

    __slots__ = ("_token", "is_over")

    def __init__(self) -> None:
        self.is_over = False
        self._token: Token[HandleCall | None] | None = None

    def __enter__(self) -> None:
        self._token = _current.set(self)

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        if self._token is not None:
            with suppress(ValueError):  # a coroutine that is thrown away, in another context
                _current.reset(self._token)


_current: ContextVar[HandleCall | None] = ContextVar("leaderq_handle_call", default=None)
_kept: ContextVar[list[Effect] | None] = ContextVar("leaderq_kept_effects", default=None)


class EffectsKept:
    """Within the block, effects of calls of ``handle`` are kept in the list that it yields, and not
    given to the store. The store is given them with the offsets of their records, in the order of
    the log.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> list[Effect]:
        kept: list[Effect] = []
        self._token = _kept.set(kept)
        return kept

    def __exit__(self, *_: object) -> None:
        with suppress(ValueError):  # likewise
            _kept.reset(self._token)


def take_effect(effect: Effect) -> None:
    """For a store: call ``effect``, which puts an effect among the store's. That happens now, or,
    within :class:`EffectsKept`, when the records of the call are committed.
    """
    kept = _kept.get()
    if kept is None:
        effect()
    else:
        kept.append(effect)


def require_handle_call(what: str) -> None:
    """Raise a ConfigurationError if ``what`` is called outside a call of ``handle``, or after it
    returned. For stores that keep effects until their batch is committed.
    """
    call = _current.get()
    if call is not None and not call.is_over:
        return
    when = "outside a call of handle" if call is None else "after its call of handle had returned"
    raise ConfigurationError(
        f"{what} was called {when}, where its effect belongs to no batch; call it before handle"
        " returns and on the thread that handle is called on, or give another thread its context:"
        f" pool.submit(contextvars.copy_context().run, function, record)"
    )
