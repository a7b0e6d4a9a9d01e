"""The states of :mod:`model.election`: the ensemble, the candidates, and what may still go wrong.

A state is a tuple of tuples; :class:`Draft` and :class:`Candidate` are made of one to be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from operator import attrgetter
from typing import Any, NamedTuple

from leaderq.election.decision import Input, Role


class Kind(IntEnum):
    """A request to ZooKeeper."""

    ENLIST = 1
    LOOK = 2
    WATCH = 3
    CLAIM = 4
    LEAVE = 5
    RELEASE = 6
    RENEW = 7
    WRITE = 8


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

    kind: int
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
    uprooted: int = 0  # others in the line
    told: int = 0  # terms ended as planned
    withdrawn: int = 0
    writes: int = 0  # fenced writes by the user's code
    passed: int = 0  # times that the first in line is to let another one lead


FIELDS = (
    *("role", "session", "linked", "inbox", "wire", "overdue", "busy", "place", "owner", "seen"),
    *("watching", "retry", "term", "node", "heard", "sent", "steady", "over", "ending", "paused"),
    "code",
)
_values: Callable[[object], tuple[Any, ...]] = attrgetter(*FIELDS)


class Candidate:
    """One candidate of a state, made to be changed; :meth:`frozen` is its part of the state."""

    __slots__ = FIELDS

    def __init__(self, values: tuple[Any, ...]) -> None:
        (
            self.role,
            self.session,  # 0: none
            self.linked,
            self.inbox,
            self.wire,
            self.overdue,  # a request of a broken connection that may still be carried out
            self.busy,  # the kind of request that the thread waits for
            self.place,  # own znode, as surveyed
            self.owner,  # the session in which that was
            self.seen,  # the record, as surveyed
            self.watching,
            self.retry,
            self.term,  # 0: no tenure
            self.node,
            self.heard,  # since the last acknowledged write was sent
            self.sent,  # since the newest write was sent
            self.steady,  # for how long the clock has lost nothing
            self.over,
            self.ending,
            self.paused,
            self.code,
        ) = values

    def frozen(self) -> tuple[Any, ...]:
        return _values(self)

    def hears(self, signal: int) -> None:
        """Put ``signal`` into the inbox; the same one twice in a row is one."""
        if not self.inbox or self.inbox[-1] != signal:
            self.inbox = (*self.inbox, signal)

    def close(self) -> None:
        """The term is over, at once and for every thread."""
        if self.term:
            self.over = self.ending = True


CONCLUDE = 100
"""In an inbox: the code has returned."""
BEGINNING = (
    Role.IDLE.value,
    *(0, False, (), (), None, 0, 0, 0, (), 0, 0),
    *(0, 0, 0, 0, 0, False, False, False, Code.NONE.value),
)


class Draft:
    """A state, made to be changed."""

    __slots__ = ("begun", "budget", "candidates", "line", "living", "record")

    def __init__(self, state: tuple[Any, ...]) -> None:
        self.line, self.record, self.living, self.begun, self.budget, candidates = state
        self.candidates = [Candidate(each) for each in candidates]

    def frozen(self) -> tuple[Any, ...]:
        return (
            self.line,
            self.record,
            self.living,
            self.begun,
            self.budget,
            tuple([each.frozen() for each in self.candidates]),
        )

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
            for request in (*one.wire, one.overdue):
                if request is not None:
                    used |= {request.node, *request.seen[1:2]}
                    if isinstance(request.reply, tuple):
                        used |= {request.reply[0], request.reply[1], request.reply[2][1]}
        return next(id for id in range(1, 100) if id not in used)

    def unused_session(self, who: int) -> int:
        """As :meth:`unused_node`. Each candidate has its own: fewer states that mean the same."""
        used = {each for each, _ in self.living} | {self.candidates[who].owner}
        return next(id for id in range(10 * who + 1, 10 * who + 10) if id not in used)

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
                one.hears(Input.CHANGED.value)

    def take_new_mark(self, who: int) -> None:
        """What this candidate has made so far is of an earlier candidacy."""
        self.line = tuple(
            [
                each._replace(mark=Mark.LEFT)
                if each.who == who and each.mark == Mark.PRESENT
                else each
                for each in self.line
            ]
        )
        one = self.candidates[who]
        one.wire = tuple([each._replace(mark=Mark.LEFT) for each in one.wire])
        if one.overdue is not None:
            one.overdue = one.overdue._replace(mark=Mark.LEFT)
        one.place = one.owner = 0
        one.seen = ()
