"""Several candidates of one career, driven by the real decision table and the real lease.

A state holds the ensemble (the line, the record of the newest term, the living sessions), all
candidates, and what may still go wrong. A move is one step of one of them: a request is carried
out, an answer is heard, a connection breaks, a thread goes on, time passes. No move is ever urgent,
so a pause of any length, at any point between two steps, is part of the model.

The table is :func:`leaderq.election.decision.step`, the lease :class:`leaderq.election.tenure.Lease`.
What the effects do follows ``enlistment.py``, ``campaign.py`` and ``runner.py``; that part is
written again here, as short as possible, and is only as true as it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, NamedTuple

from leaderq.election.decision import Decision, Effect, Input, Role, step
from leaderq.election.tenure import Lease, LeaseState
from model.assumptions import World
from model.search import Violated


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
    deleted: int = 0  # znodes deleted by an operator
    told: int = 0  # terms ended as planned
    withdrawn: int = 0
    writes: int = 0  # fenced writes by the user's code


# A late answer to one of these is as good as a late request of what follows it.
PROMPT = frozenset({Kind.ENLIST, Kind.LOOK, Kind.WATCH, Kind.LEAVE, Kind.RELEASE})
HOLDING = frozenset(role.value for role in Role if role.holds_term)
CONCLUDE = 100  # in the inbox: the code has returned
_LEADING, _SUSPECT = Role.LEADING.value, Role.SUSPECT.value
_RETRY_SOON, _LOOK_LATER = 1, 2
DEPOSING = (
    Effect.DEPOSE_SESSION,
    Effect.DEPOSE_LEASE,
    Effect.DEPOSE_FENCED,
    Effect.DEPOSE_NODE_DELETED,
)


class Candidate:
    """One candidate of a state, made to be changed; :meth:`frozen` is its part of the state."""

    __slots__ = (
        "busy",
        "code",
        "ending",
        "heard",
        "inbox",
        "linked",
                "node",
        "over",
        "overdue",
        "owner",
        "paused",
        "place",
        "retry",
        "role",
        "seen",
        "sent",
        "session",
        "steady",
        "term",
        "watching",
        "wire",
    )

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
        return (
            self.role,
            self.session,
            self.linked,
            self.inbox,
            self.wire,
            self.overdue,
            self.busy,
            self.place,
            self.owner,
            self.seen,
            self.watching,
            self.retry,
            self.term,
            self.node,
            self.heard,
            self.sent,
            self.steady,
            self.over,
            self.ending,
            self.paused,
            self.code,
        )

    def hears(self, signal: int) -> None:
        """Put ``signal`` into the inbox; the same one twice in a row is one."""
        if not self.inbox or self.inbox[-1] != signal:
            self.inbox = (*self.inbox, signal)

    def close(self) -> None:
        """The term is over, at once and for every thread."""
        if self.term:
            self.over = self.ending = True


_BEGINNING = (
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


@dataclass(frozen=True)
class Program:
    """The program's part: the table, the lease, and where it goes beyond both.

    A negative control changes one of these.
    """

    decide: Callable[[Role, Input], Decision] = step
    # The lease is renewed from the time at which the write was sent.
    from_answer: bool = False
    # A unit begins only after a look at the clock.
    looks_before_unit: bool = True
    # A claim whose answer was lost is found in the record, and confirmed.
    confirms: bool = True
    # A claim writes the record of its term.
    records: bool = True
    # A znode is mine by its mark and by its session.
    compares_session: bool = True
    # The term is told before a session is given up.
    tells_first: bool = True
    # A timed look backs each watch.
    looks_by_time: bool = True


@dataclass(frozen=True)
class Election:
    """The model. ``terms``: how many are played to their end."""

    world: World = field(default_factory=World)
    program: Program = field(default_factory=Program)
    budget: Budget = field(default_factory=Budget)
    candidates: int = 2
    terms: int = 3

    def beginning(self) -> tuple[Any, ...]:
        return ((), (0, 0, False), (), 0, self.budget, (_BEGINNING,) * self.candidates)

    def is_led(self, state: tuple[Any, ...]) -> bool:
        line, record, _, _, _, candidates = state
        if record[0] > self.terms:
            return True
        standing = {each.id for each in line}
        for values in candidates:
            one = Candidate(values)
            if one.role == _LEADING and one.code == Code.AT_WORK and one.node in standing:
                return True
        return False

    # ---- the real table and the real lease ------------------------------------------------------

    @cached_property
    def _table(self) -> dict[tuple[int, int], tuple[int, tuple[Effect, ...]]]:
        """The answer of the decision table to every pair, asked for once."""
        table = {}
        for role in Role:
            for signal in Input:
                after, effects = self.program.decide(role, signal)
                table[role.value, signal.value] = (after.value, effects)
        return table

    @cached_property
    def _trust(self) -> list[LeaseState]:
        """What the real lease says, by the time since the last acknowledged write was sent."""
        ages = range(self.world.timeout + 2)
        return [self._lease(age, age).trust(0) for age in ages]

    @cached_property
    def _late_renewal(self) -> int:
        """From this time after the newest renewal on the next one is due."""
        return self._renews.index(True)

    @cached_property
    def _ended(self) -> int:
        """From this time after the last acknowledged write on the lease is over."""
        return self._trust.index(LeaseState.NONE)

    @cached_property
    def _renews(self) -> list[bool]:
        """Whether a renewal is due, by the time since the newest one was sent."""
        ages = range(self.world.timeout + 2)
        return [self._lease(age, age).renew_s <= 0 for age in ages]

    def _lease(self, heard: int, sent: int) -> Lease:
        """The real lease, at a clock that reads 0 now."""
        return Lease(self.world.timeout, -heard, -sent)

    @cached_property
    def _acknowledged(self) -> list[list[int]]:
        ages = range(self.world.timeout + 2)
        return [
            [int(-self._lease(heard, 0).acknowledged(-sent).heard_s) for sent in ages]
            for heard in ages
        ]

    # ---- moves ----------------------------------------------------------------------------------

    def moves(self, state: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        look = Draft(state)
        if look.record[0] > self.terms:
            return
        for name, act, *arguments in self._possible(look):
            draft = Draft(state)
            try:
                act(draft, *arguments)
                self._go_on(draft)
            except Violated as broken:
                broken.move = name
                raise
            self._forget(draft)
            yield name, draft.frozen()

    def _go_on(self, draft: Draft) -> None:
        """A candidate without a term hears its signals at once: all it does then is to send a
        request, and a request that is slow is as good as a thread that is.
        """
        for who, one in enumerate(draft.candidates):
            while one.role not in HOLDING:
                if one.busy:
                    if any(each.awaited for each in one.wire):
                        break
                    self._fail(draft, who)
                elif one.inbox:
                    self._hear(draft, who)
                else:
                    break

    def _forget(self, draft: Draft) -> None:
        """Make states equal that differ only in what does not matter any more."""
        tracked = set()
        for one in draft.candidates:
            if one.over:
                one.heard = one.sent = self._late_renewal
                one.steady, one.paused = 0, False
            elif one.term:
                one.sent = min(one.sent, self._late_renewal)
            if not one.term or not self.world.drifts:
                one.steady = 0
            if one.term or any(each.kind == Kind.CLAIM for each in one.wire):
                tracked.add(one.session)
            if one.busy != Kind.CLAIM:
                one.place, one.seen = 0, ()
        # The session of one that only waits may end at any time; where none may, time is nothing.
        old = self.world.timeout if draft.budget.expired else 0
        draft.living = tuple(
            [
                (each, age if draft.budget.expired and each in tracked else old)
                for each, age in draft.living
            ]
        )

    def _possible(self, look: Draft) -> Iterator[tuple[Any, ...]]:
        for who, one in enumerate(look.candidates):
            yield from self._of_thread(look, who, one)
            yield from self._of_connection(look, who, one)
            yield from self._of_code(look, who, one)
            yield from self._of_faults(look, who, one)
        for session, age in look.living:
            if all(one.session != session for one in look.candidates):
                yield f"the session {session}, which nobody uses, ends", self._end_session, session
            elif look.budget.expired and self.world.may_expire(age + self.world.known_after()):
                yield f"the session {session} expires", self._expire, session
        yield "time passes", self._tick, None
        for who, one in enumerate(look.candidates):
            if one.term and not one.over and self.world.may_lose_time(one.steady):
                yield f"{_name(who)}: time passes, its clock stands still", self._tick, who

    def _of_thread(self, look: Draft, who: int, one: Candidate) -> Iterator[tuple[Any, ...]]:
        """What the candidate's thread may do."""
        name = _name(who)
        if one.busy:
            if look.budget.patience:
                yield f"{name}: gives up waiting for {Kind(one.busy).name}", self._give_up, who
            return
        due = self._due(one)
        if due is not None:
            yield f"{name}: {due.name}", self._take, who, due.value
            return
        if one.inbox:
            told = one.inbox[0]
            label = "its code has returned" if told == CONCLUDE else Input(told).name
            yield f"{name}: hears {label}", self._hear, who
        if one.retry:
            yield f"{name}: RETRY", self._retry, who
        if one.role in HOLDING and one.linked and self._renews[one.sent]:
            if all(each.kind != Kind.RENEW for each in one.wire):
                yield f"{name}: sends a renewal", self._renew, who

    def _due(self, one: Candidate) -> Input | None:
        """``Campaign.due``: what the clock has, which goes before the inbox."""
        if one.role not in HOLDING or not one.term:
            return None
        if one.over:
            return Input.LEASE_OVER
        trust = self._trust[one.heard]
        if trust is LeaseState.NONE:
            return Input.LEASE_OVER
        return Input.LATE if trust is LeaseState.LATE and one.role == _LEADING else None

    def _of_connection(self, look: Draft, who: int, one: Candidate) -> Iterator[tuple[Any, ...]]:
        name = _name(who)
        if one.linked:
            lives = self.world.is_served(one.session, look.living)
            waiting = next((each for each in one.wire if each.reply is None), None)
            if waiting is not None and lives:
                label = f"{name}: {Kind(waiting.kind).name} is carried out"
                yield label, self._serve, who, False
                if look.budget.cuts and waiting.kind in PROMPT:
                    label = f"{label}, the connection breaks, its answer is lost"
                    yield label, self._serve, who, True
            if one.wire and one.wire[0].reply is not None:
                label = f"{name}: the answer to {Kind(one.wire[0].kind).name} arrives"
                yield label, self._answered, who
            if look.budget.cuts or not lives:
                yield f"{name}: the connection breaks", self._cut, who, lives, False
                if look.budget.overdue and lives and self._may_be_overdue(one):
                    label = f"{name}: the connection breaks, a request is still on its way"
                    yield label, self._cut, who, lives, True
        elif one.session == 0:
            yield f"{name}: connects, with a new session", self._connect, who
        elif look.lives(one.session):
            yield f"{name}: connects again", self._connect, who
        else:
            yield f"{name}: learns that its session is over", self._learn, who
        if one.overdue is not None:
            label = f"{name}: an overdue {Kind(one.overdue.kind).name} is carried out"
            yield label, self._serve_overdue, who

    def _of_code(self, look: Draft, who: int, one: Candidate) -> Iterator[tuple[Any, ...]]:
        """What the runner and the user's code may do."""
        name, code = _name(who), one.code
        if one.role in (Role.IDLE.value, Role.RELEASING.value) and code == Code.NONE:
            if one.session and Input.STAND.value not in one.inbox:
                yield f"{name}: is asked to stand", self._signal, who, Input.STAND
        if code == Code.NONE or code == Code.RETURNED:
            return
        passes = not one.over
        if code == Code.HANDED and not one.ending:
            yield f"{name}: inaugurates its term", self._inaugurate, who
        if code == Code.AT_WORK and not one.ending and not one.paused:
            if passes or not self.program.looks_before_unit:
                yield f"{name}: begins a unit", self._begin_unit, who
        if code in (Code.AT_WORK, Code.HANDOVER):
            if self.world.may_touch_after(passes):
                yield f"{name}: has an effect without a fence", self._effect, who
            if look.budget.writes and passes and one.linked and one.session:
                if all(each.kind != Kind.WRITE for each in one.wire):
                    yield f"{name}: sends a fenced write", self._write, who
        if code in (Code.HANDED, Code.AT_WORK) and one.ending:
            label = f"{name}: the unit has returned, or is abandoned; handOver is called"
            yield label, self._goes_on, who, Code.HANDOVER
        if code == Code.HANDOVER:
            yield f"{name}: handOver returns", self._return, who

    def _of_faults(self, look: Draft, who: int, one: Candidate) -> Iterator[tuple[Any, ...]]:
        name, budget = _name(who), look.budget
        if budget.crashes and one.session:
            yield f"{name}: the process dies", self._crash, who, False
            if budget.overdue and one.linked and self._may_be_overdue(one):
                yield f"{name}: the process dies, a request is on its way", self._crash, who, True
        if budget.replaced and one.session:
            yield f"{name}: gives up its session", self._replace, who
        if budget.told and one.term and not one.ending and one.code >= Code.AT_WORK:
            yield f"{name}: the term is told to end", self._tell, who
        if budget.withdrawn and one.role != Role.IDLE.value and one.code != Code.HANDED:
            yield f"{name}: is withdrawn", self._withdraw, who
        if budget.deleted and one.node in look.standing():
            yield f"an operator deletes the znode of {name}", self._delete, who

    def _may_be_overdue(self, one: Candidate) -> bool:
        waiting = next((each for each in one.wire if each.reply is None), None)
        return waiting is not None and waiting.kind not in (Kind.LOOK, Kind.WATCH, Kind.RENEW)

    # ---- time -----------------------------------------------------------------------------------

    def _tick(self, draft: Draft, standing_still: int | None) -> None:
        most = self.world.timeout
        draft.living = tuple([(each, min(age + 1, most)) for each, age in draft.living])
        for who, one in enumerate(draft.candidates):
            if who == standing_still:
                one.steady = 0
                continue
            one.steady = min(one.steady + 1, most)
            if one.wire:
                one.wire = tuple([self._older(each) for each in one.wire])
            if one.term:
                one.sent += 1
                one.heard = min(one.heard + 1, self._ended)
                if self._trust[one.heard] is LeaseState.NONE and self.program.looks_before_unit:
                    one.close()  # a passed deadline is final: check() compares it with the clock

    def _older(self, request: Request) -> Request:
        if request.kind not in (Kind.CLAIM, Kind.RENEW):
            return request
        return request._replace(age=min(request.age + 1, self._ended))

    def _expire(self, draft: Draft, session: int) -> None:
        draft.spend("expired")
        self._end_session(draft, session)

    def _end_session(self, draft: Draft, session: int) -> None:
        draft.living = tuple([each for each in draft.living if each[0] != session])
        draft.remove(lambda node: node.session == session)

    # ---- the thread -----------------------------------------------------------------------------

    def _hear(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        signal, one.inbox = one.inbox[0], one.inbox[1:]
        if signal == CONCLUDE:
            one.close()
            one.code = Code.NONE
            draft.take_new_mark(who)
            signal = Input.HANDED_OVER.value
        self._take(draft, who, signal)

    def _retry(self, draft: Draft, who: int) -> None:
        draft.candidates[who].retry = 0
        self._take(draft, who, Input.RETRY.value)

    def _renew(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        one.sent = 0
        one.wire = (*one.wire, Request(Kind.RENEW, one.node, awaited=False))

    def _fail(self, draft: Draft, who: int) -> None:
        draft.candidates[who].busy = 0
        self._take(draft, who, Input.FAILED.value)

    def _give_up(self, draft: Draft, who: int) -> None:
        draft.spend("patience")
        one = draft.candidates[who]
        one.wire = tuple([each._replace(awaited=False) for each in one.wire])
        self._fail(draft, who)

    def _take(self, draft: Draft, who: int, signal: int) -> None:
        """``Campaign.take``: decide, and carry out the effects."""
        one = draft.candidates[who]
        one.role, effects = self._table[one.role, signal]
        for effect in effects:
            if one.busy:
                raise Violated(f"{effect.name} follows an effect that waits")
            if effect is Effect.RESUME and signal != Input.HEARD.value:
                raise Violated("paused work resumes without an acknowledged write")
            _EFFECTS[effect](self, draft, who)

    def _ask(self, draft: Draft, who: int, request: Request) -> None:
        """Send a request that the thread waits for; without a connection it fails."""
        one = draft.candidates[who]
        one.busy = request.kind
        if one.linked:
            one.wire = (*one.wire, request)

    def _enlist(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        if one.owner not in (0, one.session) and self.program.compares_session:
            draft.take_new_mark(who)
        self._ask(draft, who, Request(Kind.ENLIST))

    def _survey(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        one.owner = one.session
        self._ask(draft, who, Request(Kind.LOOK))

    def _claim(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        self._ask(draft, who, Request(Kind.CLAIM, one.place, one.seen))

    def _begin_term(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        if not one.term:  # only a control comes here without a claim that was answered
            self._win(one, one.seen[0] + 1, 0)
        one.code = Code.HANDED

    def _win(self, one: Candidate, number: int, age: int) -> None:
        one.term, one.node = number, one.place
        one.heard = one.sent = age
        one.place, one.seen, one.steady = 0, (), self.world.timeout
        one.over = one.ending = self._trust[age] is LeaseState.NONE
        one.paused = False

    def _renew_at_once(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        if one.linked and all(each.kind != Kind.RENEW for each in one.wire):
            self._renew(draft, who)

    def _pause(self, draft: Draft, who: int) -> None:
        draft.candidates[who].paused = True

    def _resume(self, draft: Draft, who: int) -> None:
        draft.candidates[who].paused = False

    def _wind_up(self, draft: Draft, who: int) -> None:
        draft.candidates[who].ending = True

    def _depose(self, draft: Draft, who: int) -> None:
        draft.candidates[who].close()
        draft.take_new_mark(who)

    def _drop_connection(self, draft: Draft, who: int) -> None:
        if draft.candidates[who].linked:
            self._cut(draft, who, False, False)

    def _release(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        if one.code not in (Code.NONE, Code.RETURNED):
            raise Violated("the leadership is released while the user's code runs")
        if one.term:
            self._ask(draft, who, Request(Kind.RELEASE, one.node, (one.term,)))
        else:
            self._ask(draft, who, Request(Kind.LEAVE))

    def _retry_soon(self, draft: Draft, who: int) -> None:
        draft.candidates[who].retry = _RETRY_SOON

    def _look_later(self, draft: Draft, who: int) -> None:
        if self.program.looks_by_time:
            draft.candidates[who].retry = _LOOK_LATER

    def _settle(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        one.retry = one.term = one.node = one.heard = one.sent = one.steady = 0
        one.over = one.ending = one.paused = False

    # ---- the connection -------------------------------------------------------------------------

    def _connect(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        if not one.session:
            one.session = draft.unused_session(who)
            draft.living = tuple(sorted((*draft.living, (one.session, 0))))
        draft.touch(one.session)
        one.linked = True
        one.hears(Input.CONNECTED.value)

    def _learn(self, draft: Draft, who: int) -> None:
        """The servers say that the session is over: heard of on every thread at once."""
        one = draft.candidates[who]
        one.session = 0
        one.close()
        one.hears(Input.LOST.value)

    def _cut(self, draft: Draft, who: int, spend: bool, overdue: bool) -> None:
        one = draft.candidates[who]
        if spend:
            draft.spend("cuts")
        if overdue:
            draft.spend("overdue")
            one.overdue = next(each for each in one.wire if each.reply is None)
        one.linked, one.wire = False, ()
        if one.term:  # else it changes nothing
            one.hears(Input.SUSPENDED.value)
        if one.watching:
            one.watching = 0
            one.hears(Input.CHANGED.value)

    def _serve_overdue(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        request, one.overdue = one.overdue, None
        assert request is not None
        node_session = one.session
        if draft.lives(node_session):
            self._carried_out(draft, who, request)

    def _serve(self, draft: Draft, who: int, lost: bool) -> None:
        one = draft.candidates[who]
        at = next(at for at, each in enumerate(one.wire) if each.reply is None)
        draft.touch(one.session)
        request = one.wire[at]
        reply = self._carried_out(draft, who, request)
        one.wire = (*one.wire[:at], request._replace(reply=reply), *one.wire[at + 1 :])
        if lost:
            self._cut(draft, who, True, False)
        elif request.kind in PROMPT:
            while one.wire and one.wire[0].reply is not None:
                self._answered(draft, who)

    def _answered(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        request, one.wire = one.wire[0], one.wire[1:]
        if request.kind == Kind.RENEW:
            self._renewed(one, request)
        elif request.kind == Kind.WRITE:
            if request.reply == Input.FENCED.value and one.term:
                one.close()
                one.hears(Input.FENCED.value)
        elif request.awaited:
            one.busy = 0
            self._concluded(draft, who, request)

    def _concluded(self, draft: Draft, who: int, request: Request) -> None:
        """The answer that the thread waits for."""
        one, reply = draft.candidates[who], request.reply
        if request.kind == Kind.LOOK:
            self._surveyed(draft, who, reply)
            return
        if request.kind == Kind.CLAIM and reply == Input.WON.value:
            if one.session != one.owner:
                reply = Input.BEATEN.value
            else:
                is_mine = request.seen[1] == request.node and self.program.confirms
                self._win(one, request.seen[0] + (not is_mine), request.age)
        elif request.kind == Kind.LEAVE:
            draft.take_new_mark(who)
        self._take(draft, who, reply)

    def _surveyed(self, draft: Draft, who: int, reply: Any) -> None:
        one = draft.candidates[who]
        node, ahead, record, session = reply
        if not node or (session != one.owner and self.program.compares_session):
            draft.take_new_mark(who)
            self._take(draft, who, Input.ABSENT.value)
            return
        one.place, one.seen = node, record
        if ahead:
            self._ask(draft, who, Request(Kind.WATCH, ahead))
        else:
            self._take(draft, who, Input.FIRST.value)

    def _renewed(self, one: Candidate, request: Request) -> None:
        if not one.term or one.code == Code.NONE:  # the tenure is closed
            return
        if request.reply == Input.GONE.value:
            one.hears(Input.GONE.value)
            return
        sent = 0 if self.program.from_answer else request.age
        one.heard = self._acknowledged[one.heard][sent]
        if self._trust[one.heard] is LeaseState.FULL:
            one.hears(Input.HEARD.value)

    # ---- the ensemble ---------------------------------------------------------------------------

    def _carried_out(self, draft: Draft, who: int, request: Request) -> Any:
        return _REQUESTS[request.kind](self, draft, who, request)

    def _do_enlist(self, draft: Draft, who: int, request: Request) -> int:
        one = draft.candidates[who]
        stands = any(each.who == who and each.mark == Mark.PRESENT for each in draft.line)
        if not request.awaited or request is one.overdue:
            stands = False  # the list was read before: only the creation is carried out now
        else:
            draft.remove(lambda node: node.who == who and node.mark == Mark.LEFT)
        if not stands:
            made = Node(draft.unused_node(), one.session, who, request.mark)
            draft.line = (*draft.line, made)
        return Input.ENLISTED.value

    def _do_look(self, draft: Draft, who: int, request: Request) -> tuple[Any, ...]:
        own = [each for each in draft.line if each.who == who and each.mark == Mark.PRESENT]
        if not own or request.mark == Mark.LEFT:
            return (0, 0, draft.record, 0)
        surplus = {each.id for each in own[1:]}
        if surplus:
            draft.remove(lambda node: node.id in surplus)
        at = draft.line.index(own[0])
        ahead = draft.line[at - 1].id if at else 0
        return (own[0].id, ahead, draft.record, own[0].session)

    def _do_watch(self, draft: Draft, who: int, request: Request) -> int:
        if request.node not in draft.standing():
            return Input.CHANGED.value
        draft.candidates[who].watching = request.node
        return Input.BEHIND.value

    def _do_claim(self, draft: Draft, who: int, request: Request) -> int:
        if not self.world.passes(request.node, draft.standing()):
            return Input.BEATEN.value
        if request.seen[1] == request.node and self.program.confirms:
            return Input.WON.value
        if not self.world.is_version(request.seen, draft.record):
            return Input.BEATEN.value
        if draft.record[1] == request.node:
            raise Violated("a claim that had been carried out is made a second time")
        if self.program.records:
            draft.record = (draft.record[0] + 1, request.node, False)
        return Input.WON.value

    def _do_leave(self, draft: Draft, who: int, request: Request) -> int:
        draft.remove(lambda node: node.who == who and node.mark != Mark.FORGOTTEN)
        return Input.RELEASED.value

    def _do_release(self, draft: Draft, who: int, request: Request) -> int:
        if request.node in draft.standing():
            self._must_be_newest(draft, request.seen[0], "the end of an old term is recorded")
            draft.record = (draft.record[0], draft.record[1], True)
            draft.remove(lambda node: node.id == request.node)
        return Input.RELEASED.value

    def _do_renew(self, draft: Draft, who: int, request: Request) -> int:
        stands = self.world.passes(request.node, draft.standing())
        return (Input.HEARD if stands else Input.GONE).value

    def _do_write(self, draft: Draft, who: int, request: Request) -> int:
        if not self.world.passes(request.node, draft.standing()):
            return Input.FENCED.value
        self._must_be_newest(draft, request.seen[0], "a fenced write of an old term passes")
        return Input.HEARD.value

    def _must_be_newest(self, draft: Draft, number: int, what: str) -> None:
        if draft.begun > number or draft.record[0] > number:
            raise Violated(what)

    # ---- the runner and the user's code ---------------------------------------------------------

    def _signal(self, draft: Draft, who: int, signal: Input) -> None:
        draft.candidates[who].hears(signal.value)

    def _inaugurate(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        if one.term == draft.begun or (one.term < draft.begun and self._counts(draft)):
            raise Violated("the number of a term is not higher than those before")
        for other in draft.candidates:
            if other is not one and other.term and not other.over and self._counts(draft):
                if self._trust[other.heard] is not LeaseState.NONE:
                    raise Violated("a term is inaugurated while an older one passes check()")
        draft.begun = max(draft.begun, one.term)
        one.code = Code.AT_WORK

    def _begin_unit(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        if self._trust[one.heard] is LeaseState.NONE:
            raise Violated("a unit begins after its lease")
        self._effect(draft, who)

    def _effect(self, draft: Draft, who: int) -> None:
        if draft.begun > draft.candidates[who].term and self._counts(draft):
            raise Violated("an effect of an old term comes after the next inauguration")

    def _counts(self, draft: Draft) -> bool:
        return self.world.counts_unfenced(draft.budget.deleted < self.budget.deleted)

    def _write(self, draft: Draft, who: int) -> None:
        draft.spend("writes")
        one = draft.candidates[who]
        write = Request(Kind.WRITE, one.node, (one.term,), awaited=False)
        one.wire = (*one.wire, write)

    def _goes_on(self, draft: Draft, who: int, code: Code) -> None:
        draft.candidates[who].code = code

    def _return(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        one.code = Code.RETURNED
        one.hears(CONCLUDE)

    def _tell(self, draft: Draft, who: int) -> None:
        draft.spend("told")
        one = draft.candidates[who]
        one.ending = True
        one.hears(Input.TOLD.value)

    # ---- faults ---------------------------------------------------------------------------------

    def _withdraw(self, draft: Draft, who: int) -> None:
        draft.spend("withdrawn")
        draft.candidates[who].hears(Input.WITHDRAW.value)

    def _crash(self, draft: Draft, who: int, overdue: bool) -> None:
        """The process is gone, its session is not; another process takes its place."""
        draft.spend("crashes")
        one = draft.candidates[who]
        request = None
        if overdue:
            draft.spend("overdue")
            request = next(each for each in one.wire if each.reply is None)
        draft.line = tuple(
            [each._replace(mark=Mark.FORGOTTEN) if each.who == who else each for each in draft.line]
        )
        draft.candidates[who] = Candidate(_BEGINNING)
        if request is not None:  # carried out at once: what comes later has nobody to speak for
            draft.candidates[who].session = one.session
            self._carried_out(draft, who, request._replace(mark=Mark.FORGOTTEN, awaited=False))
            draft.candidates[who].session = 0

    def _replace(self, draft: Draft, who: int) -> None:
        """A new session instead of the old one, which may be ended at once."""
        draft.spend("replaced")
        one = draft.candidates[who]
        if self.program.tells_first:
            one.close()
        one.session = 0
        one.overdue = None
        self._drop_connection(draft, who)
        one.hears(Input.LOST.value)

    def _delete(self, draft: Draft, who: int) -> None:
        draft.spend("deleted")
        gone = draft.candidates[who].node
        draft.remove(lambda node: node.id == gone)

    # ---- for people -----------------------------------------------------------------------------

    def shown(self, state: tuple[Any, ...]) -> str:
        draft = Draft(state)
        line = " ".join(f"{each.id}(of {_name(each.who)})" for each in draft.line) or "empty"
        told = [f"line {line}, record {draft.record}, sessions {draft.living}"]
        for who, one in enumerate(draft.candidates):
            lease = f", term {one.term}, heard {one.heard} ago" if one.term else ""
            over = ", over" if one.over else ""
            role, code = Role(one.role).name, Code(one.code).name
            told.append(f"{_name(who)} {role}, session {one.session}, code {code}{lease}{over}")
        return "; ".join(told)


def _name(who: int) -> str:
    return "abc"[who]


_REQUESTS: dict[int, Callable[[Election, Draft, int, Request], Any]] = {
    Kind.ENLIST: Election._do_enlist,
    Kind.LOOK: Election._do_look,
    Kind.WATCH: Election._do_watch,
    Kind.CLAIM: Election._do_claim,
    Kind.LEAVE: Election._do_leave,
    Kind.RELEASE: Election._do_release,
    Kind.RENEW: Election._do_renew,
    Kind.WRITE: Election._do_write,
}
_EFFECTS: dict[Effect, Callable[[Election, Draft, int], None]] = {
    Effect.ENLIST: Election._enlist,
    Effect.REQUEUE: Election._enlist,
    Effect.SURVEY: Election._survey,
    Effect.CLAIM: Election._claim,
    Effect.BEGIN_TERM: Election._begin_term,
    Effect.RENEW: Election._renew_at_once,
    Effect.PAUSE: Election._pause,
    Effect.RESUME: Election._resume,
    Effect.WIND_UP: Election._wind_up,
    **{effect: Election._depose for effect in DEPOSING},
    Effect.DROP_CONNECTION: Election._drop_connection,
    Effect.RELEASE: Election._release,
    Effect.RETRY_SOON: Election._retry_soon,
    Effect.LOOK_LATER: Election._look_later,
    Effect.SETTLE: Election._settle,
}
