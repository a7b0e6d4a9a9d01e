"""The call of ``handle`` to which an effect belongs.

An effect that waits for its batch (a message, an operation on znodes) is accepted only between the
beginning and the return of a call of ``handle``, on that call's thread, or wherever its context was
carried to: to tasks of asyncio that it starts, and by ``contextvars.copy_context().run`` to other
threads. Anywhere else it would be committed with the offsets of another batch, or dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar, Token

from leaderq.errors import ConfigurationError
from leaderq.kafka.record import Partition

Effect = Callable[[], object]
"""Puts one effect of one call of ``handle`` among those that a store commits next."""


class HandleCall:
    """One call of ``handle``, as a context manager around it. It returns the list of the effects
    that are added within. The store is given them with the offsets of the call's records, in the
    order of the log; those of a call that failed are dropped. ``stored``: the offsets that the
    call has stored by itself, in a database.
    """

    __slots__ = ("_token", "effects", "is_over", "stored")
    _token: Token[HandleCall | None]  # from the beginning on

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.stored: dict[Partition, int] = {}
        self.is_over = False

    def __enter__(self) -> list[Effect]:
        self._token = _current.set(self)
        return self.effects

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        with suppress(ValueError):  # a coroutine that is thrown away, in another context
            _current.reset(self._token)


_current: ContextVar[HandleCall | None] = ContextVar("leaderq_handle_call", default=None)
# The effects of a forked child would be added to a list that its parent does not see.
os.register_at_fork(after_in_child=lambda: _current.set(None))


def present_call() -> HandleCall | None:
    return _current.get()


def take_effect(effect: Effect) -> None:
    """For a store: call ``effect``, which puts an effect among the store's, when the records of the
    present call of ``handle`` are committed; at once, if there is no such call.
    """
    call = _current.get()
    if call is None:
        effect()
    else:
        call.effects.append(effect)


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
