"""Which writer waits for which, so that a wait that could never end is an error and not a silence.

A writer's thread is known here while it runs. Before a writer waits, for the outcome of a request or for room in
another queue, the chain of waits is followed from there; if it leads back, nobody could ever end the wait, and
:class:`~leaderq.errors.WouldDeadlock` says so. Threads that write nothing never take part. Two writers that begin to
wait for each other at once both state their wait before they look, so at least one of them sees the ring.
"""

from __future__ import annotations

import os
import threading

from leaderq.errors import QueueClosed, WouldDeadlock

_by_thread: dict[int, Writing] = {}


class Writing:
    """The right to apply the requests of one queue, and what its holder waits for at the moment."""

    __slots__ = ("ident", "name", "pid", "waits_for")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ident = 0
        self.pid = 0
        self.waits_for: Writing | None = None

    def begin(self) -> None:
        """The calling thread is the writer from now on."""
        self.ident = threading.get_ident()
        _by_thread[self.ident] = self

    def end(self) -> None:
        """The calling thread, which was the writer, is so no more."""
        _by_thread.pop(self.ident, None)
        self.ident = 0  # idents are used again

    def is_mine(self) -> bool:
        """Whether the calling thread is the writer."""
        return self.ident == threading.get_ident()


def forget_all() -> None:
    """In a child that was forked: none of the writers' threads is here, and their idents will be used again."""
    _by_thread.clear()


def begin_wait(writing: Writing, what: str) -> Writing | None:
    """The calling thread is about to wait for something that only the writer ``writing`` can do; ``what`` says for what.

    Gives what to pass to :func:`end_wait` afterwards. (A context manager would cost a tenth of the wait.)

    :raises WouldDeadlock: that writer waits, perhaps through others, for the calling thread.
    :raises QueueClosed: that writer's thread is in another process, from which this one was forked.
    """
    if writing.pid not in (0, os.getpid()):
        raise QueueClosed(f"queue {writing.name!r} belongs to process {writing.pid}, from which this one was forked")
    mine = _by_thread.get(threading.get_ident())
    if mine is not None:
        mine.waits_for = writing
        try:
            _refuse_ring(mine, what)
        except WouldDeadlock:
            mine.waits_for = None
            raise
    return mine


def end_wait(mine: Writing | None) -> None:
    """The wait is over."""
    if mine is not None:
        mine.waits_for = None


def _refuse_ring(mine: Writing, what: str) -> None:
    names, other = [mine.name], mine.waits_for
    while other is not None:
        names.append(other.name)
        if other is mine:
            ring = " -> ".join(repr(name) for name in names)
            raise WouldDeadlock(
                f"the thread that writes for queue {mine.name!r} would wait {what} for ever ({ring}); "
                "do not wait in a handler: submit the outcome back as a request (post_back)"
            )
        if len(names) > len(_by_thread) + 1:  # a ring that this writer is not part of; its members were told
            return
        other = other.waits_for
