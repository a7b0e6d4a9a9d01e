"""The states of :mod:`model.election`: the ensemble, the candidates, and what may still go wrong.

A state is a tuple of tuples; :class:`Draft` and :class:`Candidate` are made of one to be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from operator import attrgetter
from typing import Any, NamedTuple

from leaderq.election.decision import Input, Role

Kind = IntEnum("Kind", "ENLIST LOOK WATCH CLAIM LEAVE RELEASE RENEW WRITE")
"""A request to ZooKeeper."""


class Code(IntEnum):
    """Where the user's code is."""

    NONE = 0
    HANDED = 1  # the term was won; nothing of it was called yet
    AT_WORK = 2  # inaugurated; a unit is in hand, or between two
    HANDOVER = 3
    RETURNED = 4


class Mark(IntEnum):
    """Whose mark a znode of a candidate carries."""

    PRESENT = 0
    LEFT = 1  # of an earlier candidacy of the same process, which sweeps it
    FORGOTTEN = 2  # of a process that died


class Node(NamedTuple):
    """A znode in the line."""

    id: int
    session: int
    who: int
    mark: int


class Request(NamedTuple):
    """On its way to a server (``reply`` is ``None``), or answered and on its way back."""

    kind: Kind
    node: int = 0
    seen: tuple[int, ...] = ()  # LOOK: nothing; CLAIM: the record as surveyed; others: the term
    age: int = 0  # since it was sent, on the clock of its sender
    awaited: bool = True
    mark: int = 0
    reply: Any = None


class Budget(NamedTuple):
    """How often each thing may still happen."""

    expired: int = 0  # sessions in use that end; those that nobody uses may always end
    cuts: int = 0  # connections that break
    overdue: int = 0  # requests carried out after their connection broke
    patience: int = 0  # answers that are not waited for
    crashes: int = 0
    replaced: int = 0  # sessions given up for a new one
    deleted: int = 0  # znodes of leaders deleted by an operator
    told: int = 0  # terms ended as planned
    withdrawn: int = 0
    writes: int = 0  # fenced writes by the user's code
    passed: int = 0  # times that the first in line is to let another one lead


CONCLUDED = "its code has returned"
"""In an inbox."""


@dataclass(slots=True)
class Candidate:
    """One candidate of a state, made to be changed."""

    role: Role = Role.IDLE
    session: int = 0  # 0: none
    linked: bool = False
    inbox: tuple[Input | str, ...] = ()
    wire: tuple[Request, ...] = ()
    overdue: Request | None = None  # of a broken connection; may still be carried out
    busy: Kind | None = None  # the request that the thread waits for
    place: int = 0  # own znode, as surveyed
    owner: int = 0  # the session in which that was
    seen: tuple[int, ...] = ()  # the record, as surveyed
    watching: int = 0
    retry: int = 0
    term: int = 0  # 0: no tenure
    node: int = 0
    heard: int = 0  # since the last acknowledged write was sent
    sent: int = 0  # since the newest write was sent
    steady: int = 0  # for how long the clock has lost nothing
    over: bool = False
    ending: bool = False
    paused: bool = False
    code: Code = Code.NONE
    who: int = 0

    @property
    def name(self) -> str:
        return "abc"[self.who]

    @property
    def waiting(self) -> Request | None:
        """The first request that no server has carried out yet."""
        return next((each for each in self.wire if each.reply is None), None)

    def hears(self, signal: Input | str) -> None:
        """Put ``signal`` into the inbox; the same one twice in a row is one."""
        if self.inbox[-1:] != (signal,):
            self.inbox = (*self.inbox, signal)

    def close(self) -> None:
        """The term is over, at once and for every thread."""
        if self.term:
            self.over = self.ending = True


frozen_candidate = attrgetter(*[each.name for each in fields(Candidate)][:-1])
"""Its part of a state."""


class Draft:
    """A state, made to be changed."""

    __slots__ = ("begun", "budget", "candidates", "line", "living", "record")

    def __init__(self, state: tuple[Any, ...]) -> None:
        self.line, self.record, self.living, self.begun, self.budget, candidates = state
        self.candidates = [Candidate(*each, who) for who, each in enumerate(candidates)]

    def frozen(self) -> tuple[Any, ...]:
        candidates = tuple([frozen_candidate(each) for each in self.candidates])
        return self.line, self.record, self.living, self.begun, self.budget, candidates

    def spend(self, what: str) -> None:
        self.budget = self.budget._replace(**{what: getattr(self.budget, what) - 1})

    def standing(self) -> tuple[int, ...]:
        return tuple([each.id for each in self.line])

    def lives(self, session: int) -> bool:
        return any(each == session for each, _ in self.living)

    def touch(self, session: int) -> None:
        """A server has heard from ``session``."""
        self.living = tuple([(each, 0 if each == session else age) for each, age in self.living])

    def unused_node(self) -> int:
        """An id that nothing refers to any more: as good as one that was never used."""
        used = {each.id for each in self.line} | {self.record[1]}
        for one in self.candidates:
            used |= {one.place, one.node, one.watching, *one.seen[1:2]}
            for request in filter(None, (*one.wire, one.overdue)):
                used |= {request.node, *request.seen[1:2]}
                if isinstance(request.reply, tuple):
                    used |= {request.reply[0], request.reply[1], request.reply[2][1]}
        return next(id for id in range(1, 100) if id not in used)

    def unused_session(self, one: Candidate) -> int:
        """As :meth:`unused_node`. Each candidate has its own: fewer states that mean the same."""
        used = {each for each, _ in self.living} | {one.owner}
        return next(id for id in range(10 * one.who + 1, 10 * one.who + 10) if id not in used)

    def remove(self, gone: Callable[[Node], bool]) -> None:
        """Delete znodes, and let those that watch one of them hear of it."""
        left = tuple([each for each in self.line if not gone(each)])
        if len(left) == len(self.line):
            return
        self.line = left
        standing = self.standing()
        for one in self.candidates:
            if one.watching and one.watching not in standing:
                one.watching = 0
                one.hears(Input.CHANGED)

    def mark(self, one: Candidate, new: Mark) -> None:
        """Znodes of this candidate, those of its present candidacy or all, have another mark."""
        self.line = tuple(
            [
                each._replace(mark=new) if each.who == one.who and each.mark < new else each
                for each in self.line
            ]
        )

    def take_new_mark(self, one: Candidate) -> None:
        """What this candidate has made so far is of an earlier candidacy."""
        self.mark(one, Mark.LEFT)
        one.wire = tuple([each._replace(mark=Mark.LEFT) for each in one.wire])
        if one.overdue is not None:
            one.overdue = one.overdue._replace(mark=Mark.LEFT)
        one.place = one.owner = 0
        one.seen = ()
