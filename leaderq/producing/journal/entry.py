"""A record as a reader of the journal gets it."""

from __future__ import annotations

from typing import NamedTuple

from leaderq.producing.journal.record import Raw


class Entry(NamedTuple):
    """``appended_at`` and ``expires_at`` are seconds of the epoch, the latter ``None`` if it does not expire."""

    id: int
    payload: bytes
    appended_at: float
    expires_at: float | None = None


def entry_of(raw: Raw) -> Entry:
    """A record as it is given out."""
    if not raw.flags:
        return Entry(raw.id, raw.body, raw.appended_us / 1e6)
    expires_us = raw.expires_us
    return Entry(raw.id, raw.payload, raw.appended_us / 1e6, None if expires_us is None else expires_us / 1e6)
