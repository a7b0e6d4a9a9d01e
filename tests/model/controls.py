"""Negative controls: one thing broken at a time, in the world or in the program. All are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from leaderq.election.decision import Decision, Effect, Input, Role, step
from model.assumptions import World
from model.election import Election
from model.ensemble import Program
from model.lease import LeaseModel
from model.state import Budget


class NoFence(World):
    def passes(self, node: int, standing: tuple[int, ...]) -> bool:
        return True


class ShortSessions(World):
    def may_expire(self, silent: int) -> bool:
        return silent >= self.timeout * 2 // 3 - 1


class LatePings(World):
    def ping_lags(self) -> int:
        return 1


class AnyClock(World):
    def may_lose_time(self, steady: int) -> bool:
        return True


class LateEffects(World):
    def may_touch_after(self, checked: bool) -> bool:
        return True


class CountsAfterDeletion(World):
    def counts_unfenced(self, deleted: bool) -> bool:
        return True


def instead(changes: dict[tuple[Role, Input], Decision]) -> Callable[[Role, Input], Decision]:
    """The real table, except for ``changes``."""

    def changed(role: Role, signal: Input) -> Decision:
        return changes.get((role, signal)) or step(role, signal)

    return changed


_EXPIRY = Election(budget=Budget(expired=1), terms=2)
_CUT = Election(budget=Budget(cuts=1), terms=2)


def _with(model: Election, changes: dict[tuple[Role, Input], Decision]) -> Election:
    return replace(model, program=replace(model.program, decide=instead(changes)))


def _lease(**changes: Any) -> LeaseModel:
    return LeaseModel(**changes)


@dataclass(frozen=True)
class Control:
    """A model in which ``rule`` is violated."""

    name: str
    model: Election | LeaseModel
    rule: str


_OLD_EFFECT = "an effect of an old term comes after the next inauguration"
_BESIDE = "a term is inaugurated while an older one passes check()"
_WEDGED = "nobody can ever lead again"
_LEASE = "the session has ended: the lease is not over yet"
_UNIT = "the session has ended: a unit is not dead yet"

CONTROLS = [
    # ---- the world
    Control(
        "no fence",
        Election(NoFence(), budget=Budget(deleted=1, writes=1), terms=2),
        "a fenced write of an old term passes",
    ),
    Control("a session ends before T", replace(_EXPIRY, world=ShortSessions()), _BESIDE),
    Control("no assumption about clock rates", replace(_EXPIRY, world=AnyClock()), _BESIDE),
    Control("a pause between check and effect", replace(_EXPIRY, world=LateEffects()), _OLD_EFFECT),
    Control(
        "an operator deletes the leader's znode, effects are not fenced",
        Election(CountsAfterDeletion(), budget=Budget(deleted=1), terms=2),
        _BESIDE,
    ),
    # ---- the program
    Control(
        "released before the code has returned",
        _with(
            Election(budget=Budget(told=1), terms=2),
            {(Role.LEADING, Input.TOLD): (Role.RELEASING, (Effect.WIND_UP, Effect.RELEASE))},
        ),
        "the leadership is released while the user's code runs",
    ),
    Control(
        "a lost claim taken for a win",
        _with(_CUT, {(Role.CLAIMING, Input.FAILED): (Role.LEADING, (Effect.BEGIN_TERM,))}),
        "the number of a term is not higher than those before",
    ),
    Control(
        "a lost claim repeated, not looked for in the record",
        replace(_CUT, program=Program(confirms=False)),
        "a claim that had been carried out is made a second time",
    ),
    Control(
        "a claim leaves no record",
        Election(program=Program(records=False), terms=2),
        "the number of a term is not higher than those before",
    ),
    Control(
        "paused work resumes when the connection is back",
        _with(_CUT, {(Role.SUSPECT, Input.CONNECTED): (Role.LEADING, (Effect.RESUME,))}),
        "paused work resumes without a proof",
    ),
    Control(
        "a znode of another session taken for mine",
        Election(
            budget=Budget(replaced=1, expired=1), program=Program(compares_session=False), terms=2
        ),
        _BESIDE,
    ),
    Control(
        "a session given up before its term is told",
        Election(budget=Budget(replaced=1), program=Program(tells_first=False), terms=2),
        _BESIDE,
    ),
    Control(
        "a unit begins without a look at the clock",
        replace(_EXPIRY, program=Program(looks_before_unit=False)),
        "a unit begins after its lease",
    ),
    Control(
        "nobody lists again after a watch",
        _with(
            Election(program=Program(looks_by_time=False), terms=2),
            {(Role.WAITING, Input.CHANGED): (Role.WAITING, ())},
        ),
        _WEDGED,
    ),
    Control(
        "an ousted leader keeps its place",
        _with(Election(terms=2), {(Role.OUSTED, Input.HANDED_OVER): (Role.OUSTED, ())}),
        _WEDGED,
    ),
    Control(
        "one that is passed over keeps its place, and looks no more",
        _with(
            Election(budget=Budget(passed=1), program=Program(looks_by_time=False), terms=2),
            {(Role.WAITING, Input.PASSED_OVER): (Role.WAITING, ())},
        ),
        _WEDGED,
    ),
    Control(
        "a lost release is not repeated",
        _with(
            Election(budget=Budget(cuts=1), terms=2),
            {(Role.RELEASING, Input.FAILED): (Role.RELEASING, ())}
            | {
                (Role.RELEASING, each): (Role.RELEASING, ())
                for each in (Input.CONNECTED, Input.STAND)
            },
        ),
        _WEDGED,
    ),
    # ---- the proof that a session lives
    Control("the lease of before, from an acknowledged write", _lease(any_write=True), _LEASE),
    Control("the same, with ticks of T/6", LeaseModel(World(12, 1, True), any_write=True), _LEASE),
    Control("j is sent before half a tick is over", _lease(waits_half_a_tick=False), _LEASE),
    Control("there is no j", _lease(waits_for_j=False), _LEASE),
    Control("there is no k", _lease(needs_k=False), _LEASE),
    Control("the lease is measured from the answer", _lease(from_answer=True), _LEASE),
    Control("the lease lasts for T", _lease(trusted=12), _LEASE),
    Control("a clock that stands still", LeaseModel(AnyClock(12, 3, True)), _LEASE),
    Control("ticks longer than the client believes", _lease(tick=4), _LEASE),
    Control(
        "the leader of the ensemble answers before it pings",
        LeaseModel(LatePings(12, 3, True)),
        _LEASE,
    ),
    Control("a unit lives for another T/8 after 11T/12", _lease(guardian=True, trusted=11), _UNIT),
]
