"""How long a process waits before it stands again after a term (pure).

Fenced is not fatal: a deposed leader goes back into the line after a moment, with jitter, so that a flapping network does not
bring a storm of terms. A career that *fails* waits longer each time and, after ``max_failures`` terms in a row, long enough that
every other candidate has its turn first. One that ended as planned gives way for a moment, so as not to be in its successor's way
while that one claims. A term that worked for longer than the yield does not count as one of the row.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from leaderq.term import Reason

GIVE_WAY_S = 0.1
_FAILURES = frozenset({Reason.FAILED, Reason.HEALTH, Reason.BUDGET})


@dataclass(frozen=True, slots=True)
class CoolOffPolicy:
    """``first_s``: after being deposed, or after one failure; ``max_failures`` in a row yield for ``yield_s`` seconds."""

    first_s: float = 1.0
    max_failures: int = 3
    yield_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Record:
    """How the terms of this process went: ``failures`` in a row, and for how long and why to cool off now (no ``why``: as planned)."""

    failures: int = 0
    seconds: float = 0.0
    why: str = ""


def after_term(
    record: Record, reason: Reason, lasted_s: float, policy: CoolOffPolicy, *, jitter: float | None = None
) -> Record:
    """The record after a term that ended for ``reason`` after ``lasted_s`` seconds; ``jitter`` is in [0, 1)."""
    spread = 0.5 + (random.random() if jitter is None else jitter) / 2
    if reason in _FAILURES:
        failures = 1 if lasted_s > policy.yield_s else record.failures + 1
        if failures >= policy.max_failures:
            why = f"{failures} terms in a row have failed, the last because {reason.sentence}; it yields to the others"
            return Record(failures, policy.yield_s, why)
        seconds = min(policy.yield_s, policy.first_s * 2 ** (failures - 1))
        return Record(failures, seconds * spread, f"the last term ended because {reason.sentence}")
    if reason.deposes:
        return replace(record, seconds=policy.first_s * spread, why=f"it was deposed: {reason.sentence}")
    return Record(seconds=GIVE_WAY_S)
