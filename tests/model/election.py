"""Several candidates of one career, driven by the real decision table and the real shares of T.

A state holds the ensemble (the line, the record of the newest term, the living sessions), all
candidates, and what may still go wrong. A move is one step of one of them: a request is carried
out, an answer is heard, a connection breaks, a thread goes on, time passes. No move is ever urgent,
so a pause of any length, at any point between two steps, is part of the model.

The table is :func:`leaderq.election.decision.step`. A proof that the session lives is one write
here, a *renewal*; what makes it true is searched in :mod:`model.lease`.
What the effects do follows ``enlistment.py``, ``campaign.py`` and ``runner.py``; that part is
written again here, as short as possible, and is only as true as it was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from leaderq.election.decision import Effect, Input, Role
from leaderq.zookeeper.proof import Shares
from model.assumptions import World
from model.ensemble import Program, carried_out
from model.search import Violated
from model.state import (
    CONCLUDED,
    Budget,
    Candidate,
    Code,
    Draft,
    Kind,
    Mark,
    Request,
    frozen_candidate,
)

# A late answer to one of these is as good as a late request of what follows it.
PROMPT = frozenset({Kind.ENLIST, Kind.LOOK, Kind.WATCH, Kind.LEAVE, Kind.RELEASE})
HOLDING = frozenset(role for role in Role if role.holds_term)
_RETRY_SOON, _LOOK_LATER = 1, 2
Moves = Iterator[tuple[Any, ...]]
"""Of each its label, what makes it, and arguments of that."""


@dataclass
class Election:
    """The model. ``terms``: how many are won. After the claim of the last one only its inauguration
    and what the older terms still do is followed.
    """

    world: World = field(default_factory=World)
    program: Program = field(default_factory=Program)
    budget: Budget = field(default_factory=Budget)
    candidates: int = 2
    terms: int = 3

    def __post_init__(self) -> None:
        """Ask the real table and the real lease once."""
        decide = self.program.decide
        self.table = {(role, signal): decide(role, signal) for role in Role for signal in Input}
        shares = Shares(self.world.timeout, tick_s=2 * self.world.half_tick)
        # Since the newest renewal was sent, and twice since the newest proof was.
        self.due_again = ceil(shares.beat_s)
        self.late, self.ended = ceil(shares.late_s), ceil(shares.trusted_s)

    def beginning(self) -> tuple[Any, ...]:
        """The first candidate has enlisted: whoever is first is called a."""
        nobody = (frozen_candidate(Candidate()),) * self.candidates
        draft = Draft(((), (0, 0, False), (), 0, self.budget, nobody))
        first = draft.candidates[0]
        self._connect(draft, first)
        first.hears(Input.STAND)
        self._go_on(draft)
        self._serve(draft, first)
        self._forget(draft)
        return draft.frozen()

    def is_led(self, state: tuple[Any, ...]) -> bool:
        draft = Draft(state)
        return max(draft.begun, draft.record[0]) >= self.terms or any(
            one.role is Role.LEADING and one.code == Code.AT_WORK and one.node in draft.standing()
            for one in draft.candidates
        )

    # ---- moves ----------------------------------------------------------------------------------

    def moves(self, state: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
        look = Draft(state)
        if look.record[0] > self.terms:
            return
        for label, who, act, *more in self._possible(look):
            draft = Draft(state)
            try:
                act(draft, None if who is None else draft.candidates[who], *more)
                self._go_on(draft)
            except Violated as broken:
                broken.move = label
                raise
            self._forget(draft)
            yield label, draft.frozen()

    def _go_on(self, draft: Draft) -> None:
        """A candidate without a term hears its signals at once: all it does then is to send a
        request, and a request that is slow is as good as a thread that is.
        """
        for one in draft.candidates:
            while one.role not in HOLDING:
                if one.busy:
                    if any(each.awaited for each in one.wire):
                        break
                    self._fail(draft, one)
                elif one.inbox:
                    self._hear(draft, one)
                else:
                    break

    def _forget(self, draft: Draft) -> None:
        """Make states equal that differ only in what does not matter any more."""
        tracked = set()
        for one in draft.candidates:
            if one.over:
                one.heard = one.sent = self.due_again
                one.steady, one.paused = 0, False
            elif one.term:
                one.sent = min(one.sent, self.due_again)
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

    def _possible(self, look: Draft) -> Moves:
        is_last = look.record[0] >= self.terms
        for one in look.candidates:
            if is_last and not self._is_followed(look, one):
                continue
            for moves in (self._of_thread, self._of_connection, self._of_code, self._of_faults):
                for label, *act in moves(look, one):
                    yield f"{one.name}: {label}", one.who, *act
        for session, age in look.living:
            if all(one.session != session for one in look.candidates):
                label = f"the session {session}, which nobody uses, ends"
                yield label, None, self._end_session, session, False
            elif look.budget.expired and self.world.may_expire(age):
                yield f"the session {session} expires", None, self._end_session, session, True
        yield "time passes", None, self._tick
        for one in look.candidates:
            if one.term and not one.over and self.world.may_lose_time(one.steady):
                yield f"{one.name}: time passes, its clock stands still", one.who, self._tick

    def _is_followed(self, look: Draft, one: Candidate) -> bool:
        """After the claim of the last term: whether more is to be seen of this candidate."""
        if one.term:
            return one.term < self.terms or look.begun < self.terms
        node = look.record[1]
        claims = any(each.kind == Kind.CLAIM and each.node == node for each in one.wire)
        return claims or any(each.id == node and each.who == one.who for each in look.line)

    def _of_thread(self, look: Draft, one: Candidate) -> Moves:
        """What the candidate's thread may do."""
        if one.busy:
            if look.budget.patience:
                yield f"gives up waiting for {one.busy.name}", self._give_up
            return
        due = self._due(one)
        if due is not None:
            yield due.name, self._take, due
            return
        if one.inbox:
            yield f"hears {getattr(one.inbox[0], 'name', one.inbox[0])}", self._hear
        if one.retry:
            yield "RETRY", self._retry
        may_renew = one.role in HOLDING and one.linked and one.sent >= self.due_again
        if may_renew and all(each.kind != Kind.RENEW for each in one.wire):
            yield "sends a renewal", self._renew

    def _due(self, one: Candidate) -> Input | None:
        """``Campaign.due``: what the clock has, which goes before the inbox."""
        if one.role not in HOLDING or not one.term:
            return None
        if one.over or one.heard >= self.ended:
            return Input.LEASE_OVER
        return Input.LATE if one.heard >= self.late and one.role is Role.LEADING else None

    def _of_connection(self, look: Draft, one: Candidate) -> Moves:
        if one.linked:
            lives = self.world.is_served(one.session, look.living)
            if one.waiting is not None and lives:
                yield from self._of_server(look, one.waiting)
            if one.wire and one.wire[0].reply is not None:
                yield f"the answer to {one.wire[0].kind.name} arrives", self._answered
            if look.budget.cuts or not lives:
                yield "the connection breaks", self._cut, lives
                if look.budget.overdue and lives and _may_be_overdue(one):
                    label = "the connection breaks, a request is still on its way"
                    yield label, self._cut, lives, True
        elif one.session == 0:
            yield "connects, with a new session", self._connect
        elif look.lives(one.session):
            yield "connects again", self._connect
        else:
            yield "learns that its session is over", self._learn
        if one.overdue is not None:
            yield f"an overdue {one.overdue.kind.name} is carried out", self._serve_overdue

    def _of_server(self, look: Draft, waiting: Request) -> Moves:
        """How the request that waits may be carried out."""
        label = f"{waiting.kind.name} is carried out"
        yield label, self._serve
        if look.budget.cuts and waiting.kind in PROMPT:
            yield f"{label}, the connection breaks, its answer is lost", self._serve, True
        if look.budget.passed and waiting.kind == Kind.LOOK and len(look.line) > 1:
            yield "looks; if it is the first, another one should lead", self._serve, False, True

    def _of_code(self, look: Draft, one: Candidate) -> Moves:
        """What the runner and the user's code may do."""
        code = one.code
        if code == Code.NONE:
            is_idle = one.role in (Role.IDLE, Role.RELEASING)
            if is_idle and one.session and Input.STAND not in one.inbox:
                yield "is asked to stand", self._signal, Input.STAND
        elif code in (Code.AT_WORK, Code.HANDOVER):
            yield from self._of_work(look, one)
        elif code == Code.HANDED and not one.ending:
            yield "inaugurates its term", self._inaugurate
        if code in (Code.HANDED, Code.AT_WORK) and one.ending:
            label = "the unit has returned, or is abandoned; handOver is called"
            yield label, self._goes_on, Code.HANDOVER
        if code == Code.HANDOVER:
            yield "handOver returns", self._goes_on, Code.RETURNED

    def _of_work(self, look: Draft, one: Candidate) -> Moves:
        passes = not one.over
        may_begin = one.code == Code.AT_WORK and not one.ending and not one.paused
        if may_begin and (passes or not self.program.looks_before_unit):
            yield "begins a unit", self._begin_unit
        if self.world.may_touch_after(passes):
            yield "has an effect without a fence", self._effect
        may_write = look.budget.writes and passes and one.linked and one.session
        if may_write and all(each.kind != Kind.WRITE for each in one.wire):
            yield "sends a fenced write", self._write

    def _of_faults(self, look: Draft, one: Candidate) -> Moves:
        budget = look.budget
        if budget.crashes and one.session:
            yield "the process dies", self._crash, False
            if budget.overdue and one.linked and _may_be_overdue(one):
                yield "the process dies, a request is on its way", self._crash, True
        if budget.replaced and one.session:
            yield "gives up its session", self._replace
        if budget.told and one.term and not one.ending and one.code >= Code.AT_WORK:
            yield "the term is told to end", self._signal, Input.TOLD, "told"
        if budget.withdrawn and one.role is not Role.IDLE and one.code != Code.HANDED:
            yield "is withdrawn", self._signal, Input.WITHDRAW, "withdrawn"
        for node in look.line if budget.deleted else ():
            if node.who == one.who and node.id in (one.node, look.record[1]):
                yield "an operator deletes its znode", self._delete, node.id

    # ---- time -----------------------------------------------------------------------------------

    def _tick(self, draft: Draft, standing_still: Candidate | None) -> None:
        most = self.world.timeout
        draft.living = tuple([(each, min(age + 1, most)) for each, age in draft.living])
        for one in draft.candidates:
            if one is standing_still:
                one.steady = 0
                continue
            one.steady = min(one.steady + 1, most)
            if one.wire:
                one.wire = tuple([self._older(each) for each in one.wire])
            if one.term:
                one.sent += 1
                one.heard = min(one.heard + 1, self.ended)
                if one.heard >= self.ended and self.program.looks_before_unit:
                    one.close()  # a passed deadline is final: check() compares it with the clock

    def _older(self, request: Request) -> Request:
        if request.kind not in (Kind.CLAIM, Kind.RENEW):
            return request
        return request._replace(age=min(request.age + 1, self.ended))

    def _end_session(self, draft: Draft, _: None, session: int, is_used: bool) -> None:
        if is_used:
            draft.spend("expired")
        draft.living = tuple([each for each in draft.living if each[0] != session])
        draft.remove(lambda node: node.session == session)

    # ---- the thread -----------------------------------------------------------------------------

    def _hear(self, draft: Draft, one: Candidate) -> None:
        signal, one.inbox = one.inbox[0], one.inbox[1:]
        if signal == CONCLUDED:
            one.close()
            one.code = Code.NONE
            draft.take_new_mark(one)
            signal = Input.HANDED_OVER
        self._take(draft, one, signal)

    def _retry(self, draft: Draft, one: Candidate) -> None:
        one.retry = 0
        self._take(draft, one, Input.RETRY)

    def _renew(self, draft: Draft, one: Candidate) -> None:
        one.sent = 0
        one.wire = (*one.wire, Request(Kind.RENEW, one.node, awaited=False))

    def _fail(self, draft: Draft, one: Candidate) -> None:
        one.busy = None
        self._take(draft, one, Input.FAILED)

    def _give_up(self, draft: Draft, one: Candidate) -> None:
        draft.spend("patience")
        one.wire = tuple([each._replace(awaited=False) for each in one.wire])
        self._fail(draft, one)

    def _take(self, draft: Draft, one: Candidate, signal: Input) -> None:
        """``Campaign.take``: decide, and carry out the effects."""
        one.role, effects = self.table[one.role, signal]
        for effect in effects:
            if one.busy:
                raise Violated(f"{effect.name} follows an effect that waits")
            if effect is Effect.RESUME and signal is not Input.HEARD:
                raise Violated("paused work resumes without a proof")
            self._carry_out(draft, one, effect)

    def _carry_out(self, draft: Draft, one: Candidate, effect: Effect) -> None:  # noqa: C901
        match effect:
            case Effect.ENLIST | Effect.REQUEUE:
                is_of_before = one.owner not in (0, one.session) and self.program.compares_session
                if is_of_before or effect is Effect.REQUEUE:
                    draft.take_new_mark(one)
                self._ask(one, Request(Kind.ENLIST))
            case Effect.SURVEY:
                one.owner = one.session
                self._ask(one, Request(Kind.LOOK))
            case Effect.CLAIM:
                self._ask(one, Request(Kind.CLAIM, one.place, one.seen))
            case Effect.BEGIN_TERM:
                if not one.term:  # only a control comes here without a claim that was answered
                    self._win(one, one.seen[0] + 1, 0)
                one.code = Code.HANDED
            case Effect.PAUSE | Effect.RESUME:
                one.paused = effect is Effect.PAUSE
            case Effect.WIND_UP:
                one.ending = True
            case Effect.DROP_CONNECTION:
                if one.linked:
                    self._cut(draft, one, False)
            case Effect.RELEASE:
                if one.code not in (Code.NONE, Code.RETURNED):
                    raise Violated("the leadership is released while the user's code runs")
                release = Request(Kind.RELEASE, one.node, (one.term,))
                self._ask(one, release if one.term else Request(Kind.LEAVE))
            case Effect.RETRY_SOON:
                one.retry = _RETRY_SOON
            case Effect.LOOK_LATER:
                one.retry = _LOOK_LATER if self.program.looks_by_time else one.retry
            case Effect.SETTLE:
                one.retry = one.term = one.node = one.heard = one.sent = one.steady = 0
                one.over = one.ending = one.paused = False
            case _:  # all that depose
                one.close()
                draft.take_new_mark(one)

    def _ask(self, one: Candidate, request: Request) -> None:
        """Send a request that the thread waits for; without a connection it fails."""
        one.busy = request.kind
        if one.linked:
            one.wire = (*one.wire, request)

    def _win(self, one: Candidate, number: int, age: int) -> None:
        one.term, one.node = number, one.place
        one.heard = one.sent = age
        one.place, one.seen, one.steady = 0, (), self.world.timeout
        one.over = one.ending = age >= self.ended
        one.paused = False

    # ---- the connection -------------------------------------------------------------------------

    def _connect(self, draft: Draft, one: Candidate) -> None:
        if not one.session:
            one.session = draft.unused_session(one)
            draft.living = tuple(sorted((*draft.living, (one.session, 0))))
        draft.touch(one.session)
        one.linked = True
        one.hears(Input.CONNECTED)

    def _learn(self, draft: Draft, one: Candidate) -> None:
        """The servers say that the session is over: heard of on every thread at once."""
        one.session, one.overdue = 0, None
        one.close()
        one.hears(Input.LOST)

    def _cut(self, draft: Draft, one: Candidate, spend: bool, overdue: bool = False) -> None:
        if spend:
            draft.spend("cuts")
        if overdue:
            draft.spend("overdue")
            one.overdue = one.waiting
        one.linked, one.wire = False, ()
        if one.term:  # else it changes nothing
            one.hears(Input.SUSPENDED)
        if one.watching:
            one.watching = 0
            one.hears(Input.CHANGED)

    def _serve_overdue(self, draft: Draft, one: Candidate) -> None:
        request, one.overdue = one.overdue, None
        if draft.lives(one.session):
            carried_out(self, draft, one, request)

    def _serve(
        self, draft: Draft, one: Candidate, lost: bool = False, passed: bool = False
    ) -> None:
        request = one.waiting
        at = one.wire.index(request)
        draft.touch(one.session)
        reply = carried_out(self, draft, one, request)
        if passed and reply[0] and not reply[1]:
            draft.spend("passed")
            reply = Input.PASSED_OVER
        one.wire = (*one.wire[:at], request._replace(reply=reply), *one.wire[at + 1 :])
        if lost:
            self._cut(draft, one, True)
        elif request.kind in PROMPT:
            while one.wire and one.wire[0].reply is not None:
                self._answered(draft, one)

    def _answered(self, draft: Draft, one: Candidate) -> None:
        request, one.wire = one.wire[0], one.wire[1:]
        if request.kind == Kind.RENEW:
            self._renewed(one, request)
        elif request.kind == Kind.WRITE:
            if request.reply is Input.FENCED and one.term:
                one.close()
                one.hears(Input.FENCED)
        elif request.awaited:
            one.busy = None
            self._concluded(draft, one, request)

    def _concluded(self, draft: Draft, one: Candidate, request: Request) -> None:
        """The answer that the thread waits for."""
        reply = request.reply
        if request.kind == Kind.LOOK and reply is not Input.PASSED_OVER:
            self._surveyed(draft, one, *reply)
            return
        if request.kind == Kind.CLAIM and reply is Input.WON:
            if one.session != one.owner:
                reply = Input.BEATEN
            else:
                is_mine = request.seen[1] == request.node and self.program.confirms
                self._win(one, request.seen[0] + (not is_mine), request.age)
        elif request.kind == Kind.LEAVE:
            draft.take_new_mark(one)
        self._take(draft, one, reply)

    def _surveyed(
        self, draft: Draft, one: Candidate, node: int, ahead: int, record: Any, session: int
    ) -> None:
        if not node or (session != one.owner and self.program.compares_session):
            draft.take_new_mark(one)
            self._take(draft, one, Input.ABSENT)
            return
        one.place, one.seen = node, record
        if ahead:
            self._ask(one, Request(Kind.WATCH, ahead))
        else:
            self._take(draft, one, Input.FIRST)

    def _renewed(self, one: Candidate, request: Request) -> None:
        if not one.term or one.code == Code.NONE:  # the tenure is closed
            return
        if request.reply is Input.GONE:
            one.hears(Input.GONE)
            return
        one.heard = min(one.heard, 0 if self.program.from_answer else request.age)
        if one.heard < self.late:
            one.hears(Input.HEARD)

    # ---- the runner and the user's code ---------------------------------------------------------

    def _signal(self, draft: Draft, one: Candidate, signal: Input, spend: str = "") -> None:
        if spend:
            draft.spend(spend)
        one.ending = one.ending or signal is Input.TOLD
        one.hears(signal)

    def _inaugurate(self, draft: Draft, one: Candidate) -> None:
        if one.term == draft.begun or (one.term < draft.begun and self._counts(draft)):
            raise Violated("the number of a term is not higher than those before")
        if self._counts(draft) and any(
            other.term and not other.over and other.heard < self.ended
            for other in draft.candidates
            if other is not one
        ):
            raise Violated("a term is inaugurated while an older one passes check()")
        draft.begun = max(draft.begun, one.term)
        one.code = Code.AT_WORK

    def _begin_unit(self, draft: Draft, one: Candidate) -> None:
        if one.heard >= self.ended:
            raise Violated("a unit begins after its lease")
        self._effect(draft, one)

    def _effect(self, draft: Draft, one: Candidate) -> None:
        if draft.begun > one.term and self._counts(draft):
            raise Violated("an effect of an old term comes after the next inauguration")

    def _counts(self, draft: Draft) -> bool:
        return self.world.counts_unfenced(draft.budget.deleted < self.budget.deleted)

    def _write(self, draft: Draft, one: Candidate) -> None:
        draft.spend("writes")
        one.wire = (*one.wire, Request(Kind.WRITE, one.node, (one.term,), awaited=False))

    def _goes_on(self, draft: Draft, one: Candidate, code: Code) -> None:
        one.code = code
        if code is Code.RETURNED:
            one.hears(CONCLUDED)

    # ---- faults ---------------------------------------------------------------------------------

    def _crash(self, draft: Draft, one: Candidate, overdue: bool) -> None:
        """The process is gone, its session is not; another process takes its place."""
        draft.spend("crashes")
        request = one.waiting if overdue else None
        draft.mark(one, Mark.FORGOTTEN)
        draft.candidates[one.who] = Candidate(who=one.who)
        if request is not None:  # carried out at once: what comes later has nobody to speak for
            draft.spend("overdue")
            dead = Candidate(session=one.session, who=one.who)
            carried_out(self, draft, dead, request._replace(mark=Mark.FORGOTTEN, awaited=False))

    def _replace(self, draft: Draft, one: Candidate) -> None:
        """A new session instead of the old one, which may be ended at once."""
        draft.spend("replaced")
        if self.program.tells_first:
            one.close()
        one.session, one.overdue = 0, None
        if one.linked:
            self._cut(draft, one, False)
        one.hears(Input.LOST)

    def _delete(self, draft: Draft, one: Candidate, gone: int) -> None:
        draft.spend("deleted")
        draft.remove(lambda node: node.id == gone)

    # ---- for people -----------------------------------------------------------------------------

    def shown(self, state: tuple[Any, ...]) -> str:
        draft = Draft(state)
        line = " ".join(f"{each.id}(of {'abc'[each.who]})" for each in draft.line) or "empty"
        told = [f"line {line}, record {draft.record}, sessions {draft.living}"]
        for one in draft.candidates:
            lease = f", term {one.term}, heard {one.heard} ago" if one.term else ""
            over = ", over" if one.over else ""
            role, code = one.role.name, Code(one.code).name
            told.append(f"{one.name} {role}, session {one.session}, code {code}{lease}{over}")
        return "; ".join(told)


def _may_be_overdue(one: Candidate) -> bool:
    return one.waiting is not None and one.waiting.kind not in (Kind.LOOK, Kind.WATCH, Kind.RENEW)
