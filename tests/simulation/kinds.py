"""The kinds of lives that there are, by name: what ``make simulate`` and the tests lead."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any

from leaderq.testing.nemesis.history import Kind
from leaderq.testing.simulation.chronicle import LifeVerdict

Lead = Callable[[int], LifeVerdict]
"""Leads the life of a seed."""


def lives_of(module: str, life: str, **more: Any) -> Lead:
    """Lives of a module; a function of ``more`` is asked by seed."""

    def lead_one(seed: int) -> LifeVerdict:
        kind = importlib.import_module(f"simulation.{module}")
        options = {name: one(seed) if isfunction(one) else one for name, one in more.items()}
        verdict: LifeVerdict = kind.lead(getattr(kind, life)(seed, **options))
        return verdict

    return lead_one


_elections = partial(lives_of, "elections", "ElectionLife")
_schedules = partial(lives_of, "schedules", "ScheduleLife")
_messages = partial(lives_of, "messages", "MessageLife")
_queues = partial(lives_of, "queues", "QueueLife")
# Every fifth is one of deposed leaders that do not know it.
_drains = partial(lives_of, "drain", "DrainLife", zombies=lambda seed: 3 if seed % 5 == 4 else 0)

KINDS: dict[str, Lead] = {
    "elections of rude careers": _elections(),
    "elections of polite careers": _elections(polite=True, faults=8),
    "rude careers of coroutines": _elections(in_coroutines=True, faults=8),
    "elections without guardians": _elections(polite=True, has_guardian=False, faults=8),
    "elections on three servers": _elections(servers=3, faults=8),
    # Stalled, cut off from each other and paused, with ticks of T/3 to T/12.
    "elections with servers that are cut off": _elections(
        servers=3,
        busy=True,
        faults=6,
        kinds=(
            *[Kind.STALL_AND_CUT] * 6,
            *(Kind.CUT_SERVERS, Kind.FREEZE_HEAD, Kind.FREEZE_SERVER, Kind.BLACK_HOLE),
        ),
        ticks=lambda seed: (3, 6, 12)[seed % 3],
    ),
    "elections of rude careers that nobody watches": _elections(
        has_guardian=False, fenced_only=True, faults=8
    ),
    "queues": _queues(),
    "queues with one consumer": _queues(consumers=1),
    "messages": _messages(),
    # Calendars are off by more than a lease and set while one runs, clocks run at 0.98 to 1.02, and
    # machines are paused with their clocks.
    "messages beside wrong clocks": _messages(off_s=8.0),
    "coalescing": lives_of("coalescing", "CoalescingLife"),
    "schedules": _schedules(),
    "schedules under operators and set calendars": _schedules(calendars=4, requests=5),
    "schedules that nobody watches over": _schedules(has_guardian=False, faults=8, requests=3),
    "drains": _drains(store="kafka"),
    "drains in order of keys": _drains(store="kafka", by_key=True),
    "drains in order of keys in transactions": _drains(store="transaction", by_key=True),
    "drains by coroutines": _drains(store="kafka", by_key=True, in_coroutines=True),
    "drains by coroutines in transactions": _drains(
        store="transaction", by_key=True, in_coroutines=True
    ),
    "drains by coroutines in ZooKeeper": _drains(
        store="zookeeper", by_key=True, in_coroutines=True
    ),
    "drains that commit behind": _drains(store="kafka", commit_behind=True),
    "drains with offsets in ZooKeeper": _drains(store="zookeeper"),
    "drains in transactions": _drains(store="transaction"),
    "drains into a database": _drains(store="external"),
}
