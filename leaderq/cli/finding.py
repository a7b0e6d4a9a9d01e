"""The findings of the checks of ``leaderq doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from leaderq.errors import LeaderqError


class Verdict(str, Enum):
    """The result of a check; the value is the word that is shown."""

    OK = "ok"
    ADVICE = "advice"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """The result of one check. ``error`` is what a failed check raised; it decides the exit
    code.
    """

    check: str
    verdict: Verdict
    detail: str
    error: LeaderqError | None = None
