"""The protocol of a turn, explored whole: three processes, every order of their steps, lost
replies, deaths.

The model does what ``request.py`` does, a step for each thing that ZooKeeper does at one moment,
and decides with the real ``judge``. A reading that a server gave late is the same as one that its
process acts upon late, so lagging servers are in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from leaderq.coalescing.distributed.slots import SlotHolder, SlotStanding, judge


@dataclass(frozen=True)
class Process:
    """``saw_both``: at a moment since its request both slots were taken. ``lost`` counts replies
    that were lost.
    """

    phase: str = "take"
    slot: int = 0
    read: tuple[SlotHolder | None, ...] = ()
    number: int = 0
    saw_both: bool = False
    lost: int = 0


@dataclass(frozen=True)
class World:
    """``slots``: who has them, since when."""

    processes: tuple[Process, ...]
    slots: tuple[SlotHolder | None, SlotHolder | None] = (None, None)
    clock: int = 0

    def changed(
        self,
        which: int,
        process: Process,
        slots: tuple[SlotHolder | None, SlotHolder | None] | None = None,
    ) -> World:
        """After a step of one process, which may have changed the slots."""
        slots = self.slots if slots is None else slots
        others = list(self.processes)
        others[which] = process
        if None not in slots:
            others = [replace(one, saw_both=True) for one in others]
        return World(tuple(others), slots, self.clock + (slots != self.slots))


def without(slots, which):
    return tuple(None if one is not None and one.token == str(which) else one for one in slots)


def steps(world: World) -> Iterator[World]:
    for which, process in enumerate(world.processes):
        yield from {
            "take": taking,
            "read": reading,
            "judge": judging,
            "waits": waiting,
            "head": leaving,
        }.get(process.phase, lambda *_: ())(world, which, process)


def taking(world: World, which: int, process: Process) -> Iterator[World]:
    slots = list(world.slots)
    if slots[process.slot] is None:
        slots[process.slot] = SlotHolder(process.slot, str(which), world.clock + 1, 1)
    yield world.changed(which, replace(process, phase="read", read=()), tuple(slots))
    if not process.lost:  # carried out, and nobody told us
        yield world.changed(which, replace(process, phase="take", lost=1), tuple(slots))


def reading(world: World, which: int, process: Process) -> Iterator[World]:
    read = (*process.read, world.slots[(0, 1, 0)[len(process.read)]])
    yield world.changed(
        which, replace(process, read=read, phase="judge" if len(read) == 3 else "read")
    )


def judging(world: World, which: int, process: Process) -> Iterator[World]:
    standing, slot = judge(str(which), *process.read)
    if standing is SlotStanding.DECLINED:
        assert process.saw_both, "declined, though at no moment since the request anybody waited"
        yield world.changed(which, replace(process, phase="done", read=()))
    elif standing in (SlotStanding.HEAD, SlotStanding.WAITS):
        number = next(
            one.number for one in process.read if one is not None and one.token == str(which)
        )
        phase = "head" if standing is SlotStanding.HEAD else "waits"
        yield world.changed(which, replace(process, phase=phase, slot=slot, number=number, read=()))
    else:
        yield world.changed(which, replace(process, phase="take", slot=slot, read=()))


def waiting(world: World, which: int, process: Process) -> Iterator[World]:
    other = world.slots[1 - process.slot]
    if other is None or other.number > process.number:
        yield world.changed(which, replace(process, phase="head"))
    yield from leaving(world, which, process)  # gives up, or dies


def leaving(world: World, which: int, process: Process) -> Iterator[World]:
    yield world.changed(which, replace(process, phase="done", read=()), without(world.slots, which))


def check(world: World) -> None:
    heads = [process for process in world.processes if process.phase == "head"]
    waiters = [process for process in world.processes if process.phase == "waits"]
    assert len(heads) <= 1
    assert len(waiters) <= 2  # one of two may be the head already, and not know it yet
    if heads and waiters:
        assert len(waiters) == 1
        assert heads[0].number < waiters[0].number
    taken = [one.token for one in world.slots if one is not None]
    assert len(set(taken)) == len(taken), "one request has two slots"
    if all(process.phase == "done" for process in world.processes):
        assert world.slots == (None, None)


def explored(count: int) -> tuple[int, set[str]]:
    begin = World(tuple(Process() for _ in range(count)))
    seen, open_ends, endings = {begin}, [begin], set()
    while open_ends:
        world = open_ends.pop()
        check(world)
        further = list(steps(world))
        if not further:
            endings.add(" ".join(process.phase for process in world.processes))
        for one in further:
            if one not in seen:
                seen.add(one)
                open_ends.append(one)
    return len(seen), endings


def test_in_no_order_of_steps_are_there_two_heads_two_waiters_or_somebody_declined_for_nobody():
    states, endings = explored(3)
    assert states > 10_000
    assert endings == {"done done done"}
