"""What a caller holds who waits until a request is on the disk."""

from __future__ import annotations

from leaderq.errors import JournalSlow
from leaderq.producing.journal.waiting import Signal

_WAIT_S = 60.0


class Ticket:
    """Told by the journal's thread, waited for by the caller."""

    __slots__ = ("_error", "_told")

    def __init__(self) -> None:
        self._told = Signal()
        self._error: BaseException | None = None

    def tell(self, error: BaseException | None) -> None:
        """It is on the disk, or the disk refused it."""
        self._error = error
        self._told.give()

    def wait(self) -> None:
        """Until that is known.

        :raises JournalFailed: refused; :raises JournalSlow: a minute passed.
        """
        if not self._told.wait(_WAIT_S):
            raise JournalSlow(
                f"the request was taken, and the disk did not confirm it within {_WAIT_S:g} s; it may be there, or yet will be"
            )
        if self._error is not None:
            raise self._error
