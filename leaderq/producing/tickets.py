"""What a caller holds who waits until a request is on the disk."""

from __future__ import annotations

import threading

from leaderq.errors import JournalSlow

_WAIT_S = 60.0


class Ticket:
    """Told by the journal's thread, waited for by the caller. A lock and no event: half the price, and there is one to
    each request."""

    __slots__ = ("_error", "_gate")

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()
        self._error: BaseException | None = None

    def tell(self, error: BaseException | None) -> None:
        """It is on the disk, or the disk refused it."""
        self._error = error
        self._gate.release()

    def wait(self) -> None:
        """Until that is known.

        :raises JournalFailed: refused; :raises JournalSlow: a minute passed.
        """
        if not self._gate.acquire(timeout=_WAIT_S):
            raise JournalSlow(
                f"the request was taken, and the disk did not confirm it within {_WAIT_S:g} s; it may be there, or yet will be"
            )
        if self._error is not None:
            raise self._error
