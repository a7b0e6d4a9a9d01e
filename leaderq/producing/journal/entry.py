"""A record as a reader of the journal gets it."""

from __future__ import annotations

from typing import NamedTuple

from leaderq.producing.journal.record import Raw, opened_body


class Entry(NamedTuple):
    """``appended_at`` and ``expires_at`` are seconds of the epoch, the latter ``None`` if it does not expire."""

    id: int
    payload: bytes
    appended_at: float
    expires_at: float | None = None


def entry_of(raw: Raw) -> Entry:
    """A record as it is given out."""
    record_id, appended_us, flags, body, _ = raw
    if not flags:
        return Entry(record_id, body, appended_us / 1e6)
    payload, expires_us = opened_body(flags, body)
    return Entry(record_id, payload, appended_us / 1e6, None if expires_us is None else expires_us / 1e6)
