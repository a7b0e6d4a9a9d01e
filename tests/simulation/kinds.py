"""The kinds of lives that there are, by name: what ``make simulate`` and the tests lead."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from leaderq.testing.simulation.chronicle import LifeVerdict

Lead = Callable[[int], LifeVerdict]
"""Leads the life of a seed."""


def _elections(**life: Any) -> Lead:
    def lead_one(seed: int) -> LifeVerdict:
        from simulation.elections import ElectionLife, lead

        return lead(ElectionLife(seed, **life))

    return lead_one


def _cut_off(seed: int) -> LifeVerdict:
    """The servers are stalled, cut off from each other and paused, with ticks of T/3 to T/12."""
    from simulation.elections import CUT_OFF, ElectionLife, lead

    return lead(ElectionLife(seed, ticks=(3, 6, 12)[seed % 3], **CUT_OFF))


def _drains(store: str, **more: Any) -> Lead:
    """Every fifth is one of deposed leaders that do not know it."""

    def lead_one(seed: int) -> LifeVerdict:
        from simulation.drain import DrainLife, drain

        return drain(DrainLife(seed, store, zombies=3 if seed % 5 == 4 else 0, **more))

    return lead_one


def _wrong_clocks(seed: int) -> LifeVerdict:
    """Calendars are off by more than a lease and set while one runs, clocks run at 0.98 to 1.02,
    and machines are paused with their clocks."""
    from simulation.messages import MessageLife, lead

    return lead(MessageLife(seed, off_s=8.0))


def _schedules(**life: Any) -> Lead:
    def lead_one(seed: int) -> LifeVerdict:
        from simulation.schedules import ScheduleLife, lead

        return lead(ScheduleLife(seed, **life))

    return lead_one


def _of(module: str, life: str, lead: str) -> Lead:
    def lead_one(seed: int) -> LifeVerdict:
        kind = importlib.import_module(f"simulation.{module}")
        verdict: LifeVerdict = getattr(kind, lead)(getattr(kind, life)(seed))
        return verdict

    return lead_one


KINDS: dict[str, Lead] = {
    "elections of rude careers": _elections(),
    "elections of polite careers": _elections(polite=True, faults=8),
    "rude careers of coroutines": _elections(in_coroutines=True, faults=8),
    "elections without guardians": _elections(polite=True, has_guardian=False, faults=8),
    "elections on three servers": _elections(servers=3, faults=8),
    "elections with servers that are cut off": _cut_off,
    "elections of rude careers that nobody watches": _elections(
        has_guardian=False, fenced_only=True, faults=8
    ),
    "queues": _of("queues", "QueueLife", "lead"),
    "messages": _of("messages", "MessageLife", "lead"),
    "messages beside wrong clocks": _wrong_clocks,
    "coalescing": _of("coalescing", "CoalescingLife", "lead"),
    "schedules": _schedules(),
    "schedules under operators and set calendars": _schedules(calendars=4, requests=5),
    "schedules that nobody watches over": _schedules(has_guardian=False, faults=8, requests=3),
    "drains": _drains("kafka"),
    "drains in order of keys": _drains("kafka", by_key=True),
    "drains in order of keys in transactions": _drains("transaction", by_key=True),
    "drains by coroutines": _drains("kafka", by_key=True, in_coroutines=True),
    "drains by coroutines in transactions": _drains("transaction", by_key=True, in_coroutines=True),
    "drains by coroutines in ZooKeeper": _drains("zookeeper", by_key=True, in_coroutines=True),
    "drains that commit behind": _drains("kafka", commit_behind=True),
    "drains with offsets in ZooKeeper": _drains("zookeeper"),
    "drains in transactions": _drains("transaction"),
    "drains into a database": _drains("external"),
}
