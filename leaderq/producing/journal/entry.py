"""A record as a reader of the journal gets it."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """``appended_at`` and ``expires_at`` are seconds of the epoch, the latter ``None`` if it does not expire."""

    id: int
    payload: bytes
    appended_at: float
    expires_at: float | None = None
