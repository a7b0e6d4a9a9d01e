"""When a journal forces records to the disk.

=============  =========================================  ==================================================================
policy         ``append`` returns when                    what a power cut can cost (a killed process: nothing with any)
=============  =========================================  ==================================================================
EVERY_ITEM     the record is on the disk                  nothing
Every(n)       it is written, and fewer than ``n`` are    the last ``n - 1`` records
               not yet forced out
Interval(s)    it is written                              the records of the last ``s`` seconds
NO_SYNC        it is written                              what the system has not got round to; half a minute is common
=============  =========================================  ==================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leaderq.errors import ConfigurationError


@dataclass(frozen=True)
class Every:
    """Force out once ``items`` records wait for it; those that arrive together are forced out together."""

    items: int

    def __post_init__(self) -> None:
        if self.items < 1:
            raise ConfigurationError(f"Every({self.items}): a journal is synced every 1 item or more")


@dataclass(frozen=True)
class Interval:
    """Force out every ``seconds`` if anything was written."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ConfigurationError(f"Interval({self.seconds}): the interval between syncs must be more than 0 s")


@dataclass(frozen=True)
class NoSync:
    """Leave it to the operating system; ``flush`` and ``close`` still force out."""


EVERY_ITEM: Final = Every(1)
NO_SYNC: Final = NoSync()
Policy = Every | Interval | NoSync
