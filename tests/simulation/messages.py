"""Lives of a queue of messages: what was pushed is acknowledged once, whoever dies.

What is promised: a message that was pushed is delivered until it is acknowledged, killed or
removed; an acknowledgement that succeeded is the only one; no message is delivered to another
consumer while its lease and its session stand; who is free is given what is due, in order; nothing
is left of what is done.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any, NamedTuple

from leaderq.base import clock
from leaderq.dyno import Delivery, DynoQueue, Message, StaleLease
from leaderq.dyno.index import SLOWER
from leaderq.errors import LeaderqError
from leaderq.testing.nemesis.history import Kind
from leaderq.testing.simulation.cluster import SimulatedCluster
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.scheduler import Process
from leaderq.threads import Retry
from leaderq.zookeeper import Session
from simulation.led import Led, Life
from simulation.programs import FAULTS, FaultNotes, Program

ROOT = "/jobs"
NEWS_S = 2.5
"""How late a free consumer may be given what is due: it looks for leases that are over each second,
and first sees a claim up to a second after it was written."""
ORDER_S = 0.3
"""How late a consumer tells of a message that it has claimed."""
_AGAIN = Retry(attempts=None, first_s=0.1, most_s=1.0)


@dataclass(frozen=True, slots=True)
class MessageLife(Life):
    """A life of messages."""

    seconds: float = 10.0
    faults: int = 3
    kinds: Sequence[Kind] = FAULTS
    consumers: int = 2
    producers: int = 2
    messages: int = 12
    """How many each producer pushes."""
    shards: int = 2
    lease_s: float = 5.0
    rude: float = 1.0
    """How often consumers hang, die as they write, and pass messages on; 0: never."""
    off_s: float = 0.0
    """By how much calendars are off at most, and set now and then. Then clocks also run too fast or
    too slow, and machines are paused with their clocks."""


class Did(Enum):
    """What happened to a message."""

    PUSHING = "pushing"
    PUSHED = "pushed"
    DELIVERED = "delivered"
    REDEEMED = "redeemed"  # and extended by another consumer
    SETTLING = "settling"  # or removing: its answer is not there yet
    ACKNOWLEDGED = "acknowledged"
    RETURNED = "returned"  # to be delivered again
    KILLED = "killed"
    REMOVED = "removed"  # by somebody who had not asked for it
    REFUSED = "refused"
    UNKNOWN = "unknown"
    EMPTY = "empty"  # a pop has waited since ``due_s``, and wanted more
    FAULT = "fault"
    HEALED = "healed"
    LEFT = "left"  # in ZooKeeper at the end


_FREE = (Did.PUSHED, Did.RETURNED)
_ENDS = (Did.ACKNOWLEDGED, Did.UNKNOWN, Did.KILLED, Did.REMOVED)


class Step(NamedTuple):
    """One thing that happened to a message. ``beside``: of a delivery, the process whose lease and
    session still stand. ``due_s``: when it may be delivered, or when its lease ends. ``is_blind``:
    its session is over, on a machine that was paused with its clocks: nothing in it can know.
    """

    at_s: float
    what: Did
    id: str
    process: str
    beside: str = ""
    shard: str = ""
    rank: int = 0
    group: str = ""
    due_s: float = 0.0
    is_blind: bool = False


class _Led(Led[MessageLife]):
    """What the programs of a life did, in order; what a dead one does is not written down."""

    def __init__(self, life: MessageLife) -> None:
        super().__init__(life)
        self.lines: list[Step] = []
        self.receipts: list[tuple[str, str]] = []
        self._held: dict[str, tuple[str, int, float]] = {}
        self._paused: set[str] = set()  # with their clocks

    def note(
        self,
        what: Did,
        id: str = "",
        *,
        session: int | None = None,
        until_s: float = 0.0,
        keeps: bool = True,
        **more: Any,
    ) -> None:
        task = self.world.current
        if self.world.over or (task is not None and not task.process.alive):
            return
        name, beside = "" if task is None else task.process.name, ""
        if what in (Did.DELIVERED, Did.REDEEMED):
            holder, owner, ends_s = self._held.get(id, ("", 0, 0.0))
            standing = self.cluster.standing_sessions()
            stands = ends_s > self.world.now_s and {owner, session} <= standing
            if what is Did.DELIVERED and stands:
                beside = holder
            more["is_blind"] = name in self._paused and session not in standing
            self._held[id] = (name, session or 0, until_s)
            more["due_s"] = until_s
        elif what is Did.REFUSED and self._held.get(id, (name,))[0] != name:
            pass  # it is another's: that is why
        elif what is not Did.SETTLING or not keeps:
            self._held.pop(id, None)
        self.lines.append(Step(self.world.now_s, what, id, name, beside, **more))
        self.world.note(what.value, id=id)

    @property
    def _process(self) -> Process:
        """That which runs now."""
        task = self.world.current
        assert task is not None
        return task.process

    def is_rude(self, share: float) -> bool:
        return self.draw() < share * self.life.rude

    def mortal(self, share: float = 0.01) -> None:
        """Now and then its process dies a moment later, or stands still for a while: before, at or
        after the next write."""
        if self.is_rude(2 * share):
            self.note(Did.FAULT)
            process, soon_s = self._process, 0.006 * self.draw()
            if self.draw() < 0.5:
                self.world.at(soon_s, process.kill)
            else:
                self.world.at(soon_s, process.freeze)
                self.world.at(soon_s + 3.0 * self.draw(), process.thaw)

    def clocks(self, *, are_new: bool = False) -> None:
        """A new process has clocks of its own; now and then its calendar is set, or its machine is
        paused."""
        process, off_s = self._process, self.life.off_s
        if not (off_s and (are_new or self.draw() < 0.1)):
            return
        process.skew_s = off_s * (2 * self.draw() - 1)
        if are_new:
            process.run_clock(0.98 + 0.04 * self.draw())
        elif self.draw() < 0.3:
            self.note(Did.FAULT)
            self._paused.add(process.name)
            self.world.at(0.006 * self.draw(), process.freeze_with_clock)
            self.world.at(0.006 + 6.0 * self.draw(), process.thaw)

    def go(self, session: Session) -> None:
        """End the session and the process, whatever is still in its hands."""
        self.note(Did.FAULT)
        with suppress(LeaderqError):
            session.close()
        self._process.kill()

    def ends_s(self, one: Delivery, paused_s: float = 0.0) -> float:
        """The world's time of the end of a lease, by the clock of its holder, as if that had not
        stood still for ``paused_s`` since it was claimed."""
        return self.world.now_s + one.left_s / self._process.rate - paused_s

    def paused_s(self, since_s: float, since_by_clock_s: float) -> float:
        """How long its clock has stood still since then."""
        by_clock_s = (clock.now_s() - since_by_clock_s) / self._process.rate
        return self.world.now_s - since_s - by_clock_s

    # -- the life ----------------------------------------------------------------------------------

    def begin(self) -> Faults:
        for number in range(self.life.consumers):
            Program(self.cluster, f"consumer{number}", partial(_consume, self.life, self))
        for number in range(self.life.producers):
            Program(self.cluster, f"producer{number}", partial(_push, self.life, self, number))
        notes = FaultNotes(self.world, lambda *_: self.note(Did.FAULT))
        return Faults(self.cluster, notes, self.life.kinds)

    def end(self) -> None:
        self.note(Did.HEALED)
        producers = [one for one in self.cluster.workers if one.name.startswith("producer")]
        is_undone = lru_cache(1)(lambda _lines: bool(undone(self.lines)))  # asked at each event

        def is_over() -> bool:
            is_pushed = all(one.is_done for one in producers)
            return is_pushed and not is_undone(len(self.lines)) and not _left(self.cluster)

        self.world.run(self.life.seconds + 90.0, unless=is_over)

    def judged(self) -> list[str]:
        for path in _left(self.cluster):
            self.note(Did.LEFT, path)
        self.terms, life = len(self.lines), self.life
        problems = judge(self.lines, life.timeout_s, life.lease_s, life.off_s)
        return problems + super().judged()


lead = _Led.lead


def _left(cluster: SimulatedCluster) -> list[str]:
    """The znodes of messages, but for dead letters."""
    parts = ("/messages/", "/claims/", "/rests/", "/ids/", "/windows/")
    return [path for path in cluster.znodes() if any(part in path for part in parts)]


def _queue(life: MessageLife, session: Session, shards: int | None = None) -> DynoQueue:
    """``None``: consumers are told of no shard; producers add theirs while all run."""
    names = None if shards is None else [str(one) for one in range(min(shards, life.shards))]
    return DynoQueue(session, ROOT, shards=names, lease_s=life.lease_s, retry=_AGAIN)


# -- programs --------------------------------------------------------------------------------------


def _consume(life: MessageLife, log: _Led, session: Session) -> None:
    log.clocks(are_new=True)
    with _queue(life, session) as queue:
        while True:
            most, since_s = 1 + int(log.draw() * 3), log.world.now_s
            log.mortal()
            log.clocks()
            since = log.world.now_s, clock.now_s()
            try:
                deliveries = queue.pop(most, timeout_s=1.0)
            except LeaderqError:
                clock.sleep(0.2)
                continue
            for one in deliveries:
                _note_delivery(log, Did.DELIVERED, one, session, log.paused_s(*since))
            if len(deliveries) < most:
                log.note(Did.EMPTY, due_s=since_s)
            _redeem(log, queue, deliveries, session)
            for one in deliveries:
                _work(log, one)


def _note_delivery(
    log: _Led, what: Did, one: Delivery, session: Session, paused_s: float = 0.0
) -> None:
    until_s = log.ends_s(one, paused_s)
    more = {"shard": one.shard, "rank": one.priority, "group": one.frame.group or ""}
    log.note(what, one.id, session=session.id, until_s=until_s, **more)


def _redeem(log: _Led, queue: DynoQueue, mine: list[Delivery], session: Session) -> None:
    """Leave a message to whoever wants it, and perhaps go, or take one over."""
    if mine and log.is_rude(0.1):
        log.receipts.append((mine[0].id, str(mine[0].receipt)))
        if log.draw() < 0.5:
            clock.sleep(1.5 * log.draw())
            log.go(session)
    elif log.receipts and log.is_rude(0.5):
        _, receipt = log.receipts.pop()
        with suppress(LeaderqError):
            one = queue.redeem(receipt)
            one.extend()
            _note_delivery(log, Did.REDEEMED, one, session)
            clock.sleep(2.0 * log.draw())
            mine.append(one)


def _work(log: _Led, one: Delivery) -> None:
    drawn = log.draw()
    is_hung = log.is_rude(0.03)
    clock.sleep(0.005 + (3.0 if drawn > 0.96 else 0.1) * drawn + (9.0 if is_hung else 0.0))
    log.note(Did.SETTLING, one.id, keeps=drawn > 0.12)
    log.mortal()
    outcome, due_s = Did.RETURNED, log.world.now_s
    try:
        if drawn < 0.06:
            one.nack(delay_s=0.2)
        elif drawn < 0.08:
            one.release()
        elif drawn < 0.10:
            due_s += 1.0
            one.postpone(1.0)
        elif drawn < 0.12:
            one.kill()
            outcome = Did.KILLED
        else:
            outcome = Did.ACKNOWLEDGED
            one.ack()
    except LeaderqError as error:
        outcome = Did.REFUSED if isinstance(error, StaleLease) else Did.UNKNOWN
    log.note(outcome, one.id, due_s=due_s + 0.2)


def _push(life: MessageLife, log: _Led, number: int, session: Session) -> None:
    draw = log.draw
    log.clocks(are_new=True)
    with _queue(life, session, number + 1) as queue:
        begun = [one.process for one in log.lines if one.what is Did.PUSHING]
        own = [one for one in begun if one.startswith(f"producer{number}.")]
        for count in range(len(own), life.messages):
            id, rank = f"m{number}-{count}", int(draw() * 3)
            delay_s = 1.0 if draw() < 0.2 else 0.0
            group = f"g{number}" if draw() < 0.2 else None
            message = Message(id, b"work", timeout_s=delay_s, priority=rank, group=group)
            log.note(Did.PUSHING, id, group=group or "", due_s=log.world.now_s + delay_s)
            log.mortal()
            with suppress(LeaderqError):
                if draw() < 0.2:
                    queue.ensure(message)
                else:
                    queue.push([message])
                due_s = log.world.now_s + delay_s
                shard = (queue.get(id) or message).shard or ""
                log.note(Did.PUSHED, id, shard=shard, rank=rank, group=group or "", due_s=due_s)
                clock.sleep(0.2 * draw() * draw())
            if not delay_s:
                _change(log, queue, id)


def _change(log: _Led, queue: DynoQueue, id: str) -> None:
    """Now and then somebody removes a message, or puts it off."""
    drawn = log.draw()
    if drawn > 0.25:
        return
    log.mortal(0.1)
    with suppress(LeaderqError):
        if drawn > 0.04:
            if queue.set_timeout(id, 0.3):
                log.note(Did.RETURNED, id, due_s=log.world.now_s + 0.3)
            return
        log.note(Did.SETTLING, id)
        is_gone = queue.remove(id) if drawn > 0.02 else queue.finish(id)
        log.note(Did.REMOVED if is_gone else Did.REFUSED, id, due_s=log.world.now_s)
        return
    log.note(Did.UNKNOWN, id)


# -- judges ----------------------------------------------------------------------------------------


def undone(lines: Sequence[Step]) -> list[str]:
    """The messages that were pushed and neither acknowledged nor perhaps so: a process that died
    while it settled one may have been heard.
    """
    done = set(_done_s(lines))
    return [one.id for one in lines if one.what is Did.PUSHED and one.id not in done]


def _done_s(lines: Sequence[Step]) -> dict[str, float]:
    """Since when each message is done, or perhaps."""
    last = {(one.process, one.id): one for one in lines}
    done = {one.id: one.at_s for one in last.values() if one.what is Did.SETTLING}
    for one in lines:
        if one.what in _ENDS:
            done[one.id] = min(one.at_s, done.get(one.id, one.at_s))
    return done


def judge(
    lines: Sequence[Step], timeout_s: float = 4.0, lease_s: float = 5.0, off_s: float = 0.0
) -> list[str]:
    """All that is wrong with what happened. Where calendars are off, delays are, too."""
    problems = [f"{id} was pushed, and nobody has acknowledged it" for id in undone(lines)]
    problems += [f"{one.id} is left in ZooKeeper" for one in lines if one.what is Did.LEFT]
    problems += [*doubled(lines), *too_soon(lines, off_s), *groups(lines)]
    if not off_s:
        problems += left_lying(lines, timeout_s, lease_s) + out_of_order(lines)
    return problems


def doubled(lines: Sequence[Step]) -> list[str]:
    """No message is held by two, none is done twice, and none comes after it was done."""
    problems: list[str] = []
    over: dict[str, str] = {}
    holder: dict[str, str] = {}
    for one in lines:
        if one.beside:
            problems.append(f"{one.id} was delivered to {one.process}, and {one.beside} held it")
        if one.what in (Did.DELIVERED, Did.REDEEMED):
            holder[one.id] = one.process
        if one.what is Did.ACKNOWLEDGED and holder.get(one.id) not in (None, one.process):
            problems.append(f"{one.process} acknowledged {one.id}, which {holder[one.id]} had")
        if one.what is Did.ACKNOWLEDGED and over.get(one.id) == one.what.value:
            problems.append(f"{one.id} was acknowledged twice, now by {one.process}")
        elif one.what in (Did.DELIVERED, Did.ACKNOWLEDGED) and one.id in over and not one.is_blind:
            problems.append(
                f"{one.id} was {one.what.value} by {one.process} after it was {over[one.id]}"
            )
        if one.what in (Did.ACKNOWLEDGED, Did.KILLED):
            over[one.id] = one.what.value
    return problems


def too_soon(lines: Sequence[Step], off_s: float) -> list[str]:
    """No message is delivered before its time, or when its lease is over."""
    problems: list[str] = []
    due_s = {one.id: one.due_s for one in lines if one.what is Did.PUSHING}
    for one in lines:
        if one.what is Did.DELIVERED and one.at_s < due_s.get(one.id, 0.0) - 0.002 - 2 * off_s:
            problems.append(f"{one.id} was delivered before its time, {due_s[one.id]:.3f}")
        if one.what is Did.DELIVERED and one.due_s <= one.at_s and not off_s:
            problems.append(f"{one.id} was delivered to {one.process} with a lease that was over")
    return problems


def left_lying(lines: Sequence[Step], timeout_s: float, lease_s: float) -> list[str]:
    """Once all is healed, no pop waits in vain while a message is free that is in no group.

    Whoever is refused has lost it to another, who may have died before he told. Whoever dies or
    stands still may have claimed any, and told of none. Who has just come lets a lease pass from
    then on.
    """
    healed_s = next((one.at_s for one in lines if one.what is Did.HEALED), math.inf)
    problems: list[str] = []
    free_s: dict[str, float] = {}
    before_s: dict[str, float] = {}
    began_s: dict[str, float] = {}
    known: set[str] = set()
    last: dict[str, Did] = {}
    for one in lines:
        last[one.id] = one.what
        if one.what is Did.PUSHED and not (one.group or one.id in known):
            free_s.setdefault(one.id, one.due_s)
        elif one.id in free_s and one.what in (Did.DELIVERED, Did.REDEEMED, Did.RETURNED):
            free_s[one.id] = one.due_s
        elif one.what is Did.SETTLING and one.id in free_s:  # perhaps done, from now on
            before_s[one.id], free_s[one.id] = free_s[one.id], math.inf
        elif one.what is Did.REFUSED and free_s.get(one.id) == math.inf:
            free_s[one.id] = max(before_s[one.id], one.at_s + lease_s)
        elif one.what is Did.FAULT and one.process.startswith("consumer"):
            held_s = one.at_s + lease_s * SLOWER
            free_s = {id: max(since_s, held_s) for id, since_s in free_s.items()}
        elif one.what in _ENDS:
            free_s.pop(one.id, None)
        elif one.what is Did.EMPTY and one.due_s > healed_s + 2 * timeout_s:
            looks_s = began_s.setdefault(one.process, one.due_s)
            problems += [
                f"{id} was free at {since_s:.3f}, and not given to {one.process} at {one.at_s:.3f}"
                for id, since_s in free_s.items()
                if max(since_s, looks_s + lease_s * SLOWER * (last[id] not in _FREE))
                < one.at_s - NEWS_S
            ]
        if one.what is not Did.PUSHING:
            known.add(one.id)
    return problems


def out_of_order(lines: Sequence[Step]) -> list[str]:
    """Before the first fault, of the messages of a shard that are due the one with the best
    priority is delivered next, and of these the one that was pushed first."""
    problems: list[str] = []
    pushing_s: dict[str, float] = {}
    free: dict[str, Step] = {}
    passed: dict[str, Step] = {}
    given: set[str] = set()
    for one in takewhile(lambda line: line.what is not Did.FAULT, lines):
        if one.what is Did.PUSHING:
            pushing_s[one.id] = one.at_s
        elif one.what is Did.PUSHED and not (one.group or one.id in given):
            free[one.id] = one
        elif one.what is Did.DELIVERED:
            free.pop(one.id, None)
            given.add(one.id)
            other = passed.pop(one.id, one)
            if one.at_s > other.at_s + ORDER_S:
                problems.append(f"{one.id} came {one.at_s - other.at_s:.3f} s after {other.id}")
            # A group goes by its best, so one of a group may go before others.
            for waiting in [] if one.group else _due(free.values(), one):
                if (waiting.rank, waiting.at_s) < (one.rank, pushing_s.get(one.id, 0.0)):
                    passed.setdefault(waiting.id, one)
        elif one.what is Did.SETTLING:
            passed.pop(one.id, None)
        elif one.what is Did.RETURNED and one.id in free:
            free[one.id] = free[one.id]._replace(due_s=one.due_s)
    return problems


def _due(free: Iterable[Step], one: Step) -> list[Step]:
    """Those of these that could have been delivered in place of ``one``."""
    by_s = one.at_s - ORDER_S
    return [each for each in free if each.shard == one.shard and max(each.due_s, each.at_s) < by_s]


def groups(lines: Sequence[Step]) -> list[str]:
    """No message of a group is delivered before those that were pushed before it are done."""
    problems: list[str] = []
    pushing_s = {one.id: one.at_s for one in lines if one.what is Did.PUSHING}
    open_: dict[str, Step] = {}
    settled: set[str] = set()
    for one in lines:
        if one.what is Did.PUSHED and one.group and one.id not in settled:
            open_[one.id] = one
        elif one.what is Did.SETTLING:  # perhaps done, from now on
            settled.add(one.id)
            open_.pop(one.id, None)
        elif one.what is Did.DELIVERED and one.group:
            problems += [
                f"{one.id} was delivered before {id}, of the same group"
                for id, other in open_.items()
                if other.group == one.group and other.at_s < pushing_s[one.id]
            ]
    return problems
