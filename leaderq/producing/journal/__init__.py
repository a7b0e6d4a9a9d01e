"""A journal: records appended to segment files, read in order, acknowledged one by one, none of
them lost by a crash."""

from __future__ import annotations

from leaderq.producing.journal.journal import Journal
from leaderq.producing.journal.policy import (
    EVERY_ITEM,
    NO_SYNC,
    Damage,
    Every,
    Interval,
    JournalCounters,
    NoSync,
    Policy,
    RecoveryReport,
)
from leaderq.producing.journal.records import JournalRecord

__all__ = [
    "EVERY_ITEM",
    "NO_SYNC",
    "Damage",
    "Every",
    "Interval",
    "Journal",
    "JournalCounters",
    "JournalRecord",
    "NoSync",
    "Policy",
    "RecoveryReport",
]
