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

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Any

from leaderq.election.decision import Effect, Input, Role
from leaderq.zookeeper.proof import Shares
from model.assumptions import World
from model.ensemble import Program, carried_out
from model.search import Violated
from model.state import BEGINNING, CONCLUDE, Budget, Candidate, Code, Draft, Kind, Mark, Request

# A late answer to one of these is as good as a late request of what follows it.
PROMPT = frozenset({Kind.ENLIST, Kind.LOOK, Kind.WATCH, Kind.LEAVE, Kind.RELEASE})
HOLDING = frozenset(role.value for role in Role if role.holds_term)
_LEADING, _SUSPECT = Role.LEADING.value, Role.SUSPECT.value
_RETRY_SOON, _LOOK_LATER = 1, 2


@dataclass(frozen=True)
class Election:
    """The model. ``terms``: how many are won. After the claim of the last one only its inauguration
    and what the older terms still do is followed.
    """

    world: World = field(default_factory=World)
    program: Program = field(default_factory=Program)
    budget: Budget = field(default_factory=Budget)
    candidates: int = 2
    terms: int = 3

    def beginning(self) -> tuple[Any, ...]:
        """The first candidate has enlisted: whoever is first is called a."""
        state = ((), (0, 0, False), (), 0, self.budget, (BEGINNING,) * self.candidates)
        draft = Draft(state)
        self._connect(draft, 0)
        self._signal(draft, 0, Input.STAND)
        self._go_on(draft)
        self._serve(draft, 0, False)
        self._forget(draft)
        return draft.frozen()

    def is_led(self, state: tuple[Any, ...]) -> bool:
        line, record, _, begun, _, candidates = state
        if begun >= self.terms or record[0] >= self.terms:
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
    def _shares(self) -> Shares:
        """Those of the program; a proof is one write here, :mod:`model.lease` has its steps."""
        return Shares(self.world.timeout, tick_s=2 * self.world.half_tick)

    @cached_property
    def _due_again(self) -> int:
        """From this time after the newest renewal on the next one is due."""
        return ceil(self._shares.beat_s)

    @cached_property
    def _late(self) -> int:
        """From this time after the newest proof was sent on a newer one is late."""
        return ceil(self._shares.late_s)

    @cached_property
    def _ended(self) -> int:
        """From this time after it on the lease is over."""
        return ceil(self._shares.trusted_s)

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
                one.heard = one.sent = self._due_again
                one.steady, one.paused = 0, False
            elif one.term:
                one.sent = min(one.sent, self._due_again)
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
        is_last = look.record[0] >= self.terms
        for who, one in enumerate(look.candidates):
            if is_last and not self._is_followed(look, who, one):
                continue
            yield from self._of_thread(look, who, one)
            yield from self._of_connection(look, who, one)
            yield from self._of_code(look, who, one)
            yield from self._of_faults(look, who, one)
        for session, age in look.living:
            if all(one.session != session for one in look.candidates):
                yield f"the session {session}, which nobody uses, ends", self._end_session, session
            elif look.budget.expired and self.world.may_expire(age):
                yield f"the session {session} expires", self._expire, session
        yield "time passes", self._tick, None
        for who, one in enumerate(look.candidates):
            if one.term and not one.over and self.world.may_lose_time(one.steady):
                yield f"{_name(who)}: time passes, its clock stands still", self._tick, who

    def _is_followed(self, look: Draft, who: int, one: Candidate) -> bool:
        """After the claim of the last term: whether more is to be seen of this candidate."""
        if one.term:
            return one.term < self.terms or look.begun < self.terms
        node = look.record[1]
        claims = any(each.kind == Kind.CLAIM and each.node == node for each in one.wire)
        return claims or any(each.id == node and each.who == who for each in look.line)

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
        may_renew = one.role in HOLDING and one.linked and one.sent >= self._due_again
        if may_renew and all(each.kind != Kind.RENEW for each in one.wire):
            yield f"{name}: sends a renewal", self._renew, who

    def _due(self, one: Candidate) -> Input | None:
        """``Campaign.due``: what the clock has, which goes before the inbox."""
        if one.role not in HOLDING or not one.term:
            return None
        if one.over or one.heard >= self._ended:
            return Input.LEASE_OVER
        return Input.LATE if one.heard >= self._late and one.role == _LEADING else None

    def _of_connection(self, look: Draft, who: int, one: Candidate) -> Iterator[tuple[Any, ...]]:
        name = _name(who)
        if one.linked:
            lives = self.world.is_served(one.session, look.living)
            waiting = next((each for each in one.wire if each.reply is None), None)
            if waiting is not None and lives:
                yield from self._of_server(look, who, waiting)
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

    def _of_server(self, look: Draft, who: int, waiting: Request) -> Iterator[tuple[Any, ...]]:
        """How the request that waits may be carried out."""
        name = _name(who)
        label = f"{name}: {Kind(waiting.kind).name} is carried out"
        yield label, self._serve, who, False
        if look.budget.cuts and waiting.kind in PROMPT:
            yield f"{label}, the connection breaks, its answer is lost", self._serve, who, True
        if look.budget.passed and waiting.kind == Kind.LOOK and len(look.line) > 1:
            label = f"{name}: looks; if it is the first, another one should lead"
            yield label, self._serve, who, False, True

    def _of_code(self, look: Draft, who: int, one: Candidate) -> Iterator[tuple[Any, ...]]:
        """What the runner and the user's code may do."""
        name, code = _name(who), one.code
        if code == Code.NONE:
            is_idle = one.role in (Role.IDLE.value, Role.RELEASING.value)
            if is_idle and one.session and Input.STAND.value not in one.inbox:
                yield f"{name}: is asked to stand", self._signal, who, Input.STAND
        elif code in (Code.AT_WORK, Code.HANDOVER):
            yield from self._of_work(look, who, one)
        elif code == Code.HANDED and not one.ending:
            yield f"{name}: inaugurates its term", self._inaugurate, who
        if code in (Code.HANDED, Code.AT_WORK) and one.ending:
            label = f"{name}: the unit has returned, or is abandoned; handOver is called"
            yield label, self._goes_on, who, Code.HANDOVER
        if code == Code.HANDOVER:
            yield f"{name}: handOver returns", self._return, who

    def _of_work(self, look: Draft, who: int, one: Candidate) -> Iterator[tuple[Any, ...]]:
        name, passes = _name(who), not one.over
        may_begin = one.code == Code.AT_WORK and not one.ending and not one.paused
        if may_begin and (passes or not self.program.looks_before_unit):
            yield f"{name}: begins a unit", self._begin_unit, who
        if self.world.may_touch_after(passes):
            yield f"{name}: has an effect without a fence", self._effect, who
        may_write = look.budget.writes and passes and one.linked and one.session
        if may_write and all(each.kind != Kind.WRITE for each in one.wire):
            yield f"{name}: sends a fenced write", self._write, who

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
        for node in look.line:
            what = "deleted" if node.id in (one.node, look.record[1]) else "uprooted"
            if node.who == who and getattr(budget, what):
                yield f"an operator deletes a znode of {name}", self._delete, node.id, what

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
                if one.heard >= self._ended and self.program.looks_before_unit:
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
                raise Violated("paused work resumes without a proof")
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

    def _requeue(self, draft: Draft, who: int) -> None:
        draft.take_new_mark(who)
        self._enlist(draft, who)

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
        one.over = one.ending = age >= self._ended
        one.paused = False

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
        one.session, one.overdue = 0, None
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
        node_session = one.session
        if draft.lives(node_session):
            carried_out(self, draft, who, request)

    def _serve(self, draft: Draft, who: int, lost: bool, passed: bool = False) -> None:
        one = draft.candidates[who]
        at = next(at for at, each in enumerate(one.wire) if each.reply is None)
        draft.touch(one.session)
        request = one.wire[at]
        reply = carried_out(self, draft, who, request)
        if passed and reply[0] and not reply[1]:
            draft.spend("passed")
            reply = Input.PASSED_OVER.value
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
        if request.kind == Kind.LOOK and reply != Input.PASSED_OVER.value:
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
        one.heard = min(one.heard, sent)
        if one.heard < self._late:
            one.hears(Input.HEARD.value)

    # ---- the runner and the user's code ---------------------------------------------------------

    def _signal(self, draft: Draft, who: int, signal: Input) -> None:
        draft.candidates[who].hears(signal.value)

    def _inaugurate(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        if one.term == draft.begun or (one.term < draft.begun and self._counts(draft)):
            raise Violated("the number of a term is not higher than those before")
        if self._counts(draft) and any(
            other.term and not other.over and other.heard < self._ended
            for other in draft.candidates
            if other is not one
        ):
            raise Violated("a term is inaugurated while an older one passes check()")
        draft.begun = max(draft.begun, one.term)
        one.code = Code.AT_WORK

    def _begin_unit(self, draft: Draft, who: int) -> None:
        one = draft.candidates[who]
        if one.heard >= self._ended:
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
        draft.candidates[who] = Candidate(BEGINNING)
        if request is not None:  # carried out at once: what comes later has nobody to speak for
            draft.candidates[who].session = one.session
            carried_out(self, draft, who, request._replace(mark=Mark.FORGOTTEN, awaited=False))
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

    def _delete(self, draft: Draft, gone: int, what: str) -> None:
        draft.spend(what)
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


_EFFECTS: dict[Effect, Callable[[Election, Draft, int], None]] = {
    effect: getattr(Election, "_depose" if "DEPOSE" in effect.name else f"_{effect.name.lower()}")
    for effect in Effect
}
"""The method of its name; there is one for all that depose."""
