"""What a journal may take: sizes checked when it is opened."""

from __future__ import annotations

from typing import Final

from leaderq.errors import ConfigurationError

SEGMENT_BYTES: Final = 32 << 20
LEAST_SEGMENT_BYTES: Final = 4096
SEGMENTS_IN_CAP: Final = 4
_ALLOT_BYTES: Final = 1 << 20


def fitting_segment_bytes(wanted: int, *, max_bytes: int | None, reserve_bytes: int, ttl_s: float | None) -> int:
    """The size of segments: several fit under a cap, so that room comes back bit by bit.

    :raises ConfigurationError: names every limit that cannot be kept.
    """
    least_cap = SEGMENTS_IN_CAP * LEAST_SEGMENT_BYTES
    problems = []
    if max_bytes is not None and max_bytes < least_cap:
        problems.append(f"max_bytes={max_bytes}: a journal needs {least_cap} bytes or more")
    if not LEAST_SEGMENT_BYTES <= wanted <= 1 << 30:
        problems.append(f"segment_bytes={wanted}: a segment takes {LEAST_SEGMENT_BYTES} to {1 << 30} bytes")
    if reserve_bytes < 0:
        problems.append(f"reserve_bytes={reserve_bytes}: must be 0 or more")
    if ttl_s is not None and not ttl_s > 0:
        problems.append(f"ttl_s={ttl_s}: must be more than 0 s, or None for records that do not expire")
    if problems:
        raise ConfigurationError(*problems)
    return wanted if max_bytes is None else min(wanted, max_bytes // SEGMENTS_IN_CAP)


def allotment(segment_bytes: int, *, is_durable: bool) -> int:
    """How many bytes ahead of the last record a segment file is given, so that syncs of single ones are quick; 0: none.

    It counts towards the cap.
    """
    return _ALLOT_BYTES if is_durable and segment_bytes >= 8 * _ALLOT_BYTES else 0
