"""When a journal forces records to the disk, and what it may take.

===========  ====================================  =================================================
policy       ``append`` returns when               what a power cut can cost (a killed process:
                                                   nothing with any)
===========  ====================================  =================================================
EVERY_ITEM   the record is on the disk             nothing
Every(n)     it is written, and fewer than ``n``   the last ``n - 1`` records
             are not yet forced out
Interval(s)  it is written                         the records of the last ``s`` seconds
NO_SYNC      it is written                         what the system has not got round to; half a
                                                   minute is common
===========  ====================================  =================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leaderq.errors import ConfigurationError


@dataclass(frozen=True)
class Every:
    """Force out once ``items`` records wait for it; those that arrive together are forced out
    together."""

    items: int

    def __post_init__(self) -> None:
        if self.items < 1:
            raise ConfigurationError(
                f"Every({self.items}): a journal is synced every 1 item or more"
            )


@dataclass(frozen=True)
class Interval:
    """Force out every ``seconds`` if anything was written."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ConfigurationError(
                f"Interval({self.seconds}): the interval between syncs must be more than 0 s"
            )


@dataclass(frozen=True)
class NoSync:
    """Leave it to the operating system; ``flush`` and ``close`` still force out."""


EVERY_ITEM: Final = Every(1)
NO_SYNC: Final = NoSync()
Policy = Every | Interval | NoSync


SEGMENT_BYTES: Final = 32 << 20
LEAST_SEGMENT_BYTES: Final = 4096
SEGMENTS_IN_CAP: Final = 4
_ALLOT_BYTES: Final = 1 << 20


def fitting_segment_bytes(wanted: int, max_bytes: int | None, reserve_bytes: int) -> int:
    """The size of segments: several fit under a cap, so that room comes back bit by bit.

    :raises ConfigurationError: names every limit that cannot be kept.
    """
    least_cap = SEGMENTS_IN_CAP * LEAST_SEGMENT_BYTES
    problems = []
    if max_bytes is not None and max_bytes < least_cap:
        problems.append(f"max_bytes={max_bytes}: a journal needs {least_cap} bytes or more")
    if not LEAST_SEGMENT_BYTES <= wanted <= 1 << 30:
        problems.append(
            f"segment_bytes={wanted}: a segment takes {LEAST_SEGMENT_BYTES} to {1 << 30} bytes"
        )
    if reserve_bytes < 0:
        problems.append(f"reserve_bytes={reserve_bytes}: must be 0 or more")
    if problems:
        raise ConfigurationError(*problems)
    return wanted if max_bytes is None else min(wanted, max_bytes // SEGMENTS_IN_CAP)


def allotment(segment_bytes: int, *, is_durable: bool) -> int:
    """How many bytes ahead of the last record a segment file is given, so that syncs of single ones
    are quick; 0: none.

    It counts towards the cap.
    """
    return _ALLOT_BYTES if is_durable and segment_bytes >= 8 * _ALLOT_BYTES else 0
