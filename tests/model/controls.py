"""Negative controls: one thing broken at a time, in the world or in the program. All are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leaderq.election.decision import Decision, Effect, Input, Role, step
from model.assumptions import World
from model.election import Election
from model.ensemble import Program
from model.lease import LeaseModel
from model.state import Budget


class ShortSessions(World):
    def may_expire(self, silent: int) -> bool:
        return silent >= self.timeout * 2 // 3 - 1


def broken(*given: Any, **answers: object) -> World:
    """A world in which these assumptions have one answer, whatever is asked."""
    methods = {name: lambda *_, answer=answer: answer for name, answer in answers.items()}
    made: World = type("Broken", (World,), methods)(*given)
    return made


def election(
    world: World | None = None, *, terms: int = 2, candidates: int = 2, **more: Any
) -> Election:
    """``more``: parts of the budget, and changes of the program; what is ``decided`` instead of the
    real table's decisions.
    """
    changes: dict[tuple[Role, Input], Decision] = more.pop("decided", {})

    def decide(role: Role, signal: Input) -> Decision:
        return changes.get((role, signal)) or step(role, signal)

    budget = {name: more.pop(name) for name in Budget._fields if name in more}
    program = Program(**({"decide": decide} if changes else {}), **more)
    return Election(world or World(), program, Budget(**budget), candidates, terms)


@dataclass(frozen=True)
class Control:
    """A model in which ``rule`` is violated."""

    name: str
    model: Election | LeaseModel
    rule: str


_OLD_EFFECT = "an effect of an old term comes after the next inauguration"
_BESIDE = "a term is inaugurated while an older one passes check()"
_WEDGED = "nobody can ever lead again"
_NUMBER = "the number of a term is not higher than those before"
_RELEASED = "the leadership is released while the user's code runs"
_REPEATED = "a claim that had been carried out is made a second time"
_LEASE = "the session has ended: the lease is not over yet"
_UNIT = "the session has ended: a unit is not dead yet"
_TOLD = {(Role.LEADING, Input.TOLD): (Role.RELEASING, (Effect.WIND_UP, Effect.RELEASE))}
_FAILED_WINS = {(Role.CLAIMING, Input.FAILED): (Role.LEADING, (Effect.BEGIN_TERM,))}
_RESUMES = {(Role.SUSPECT, Input.CONNECTED): (Role.LEADING, (Effect.RESUME,))}
_LISTS_NOT = {(Role.WAITING, Input.CHANGED): (Role.WAITING, ())}
_STAYS = {(Role.OUSTED, Input.HANDED_OVER): (Role.OUSTED, ())}
_LOOKS_NOT = {(Role.WAITING, Input.PASSED_OVER): (Role.WAITING, ())}
_RELEASES_ONCE = {
    (Role.RELEASING, each): (Role.RELEASING, ())
    for each in (Input.FAILED, Input.CONNECTED, Input.STAND)
}
_CONTROLS: dict[str, tuple[Election | LeaseModel, str]] = {
    # ---- the world
    "no fence": (
        election(broken(passes=True), deleted=1, writes=1),
        "a fenced write of an old term passes",
    ),
    "a session ends before T": (election(ShortSessions(), expired=1), _BESIDE),
    "no assumption about clock rates": (election(broken(may_lose_time=True), expired=1), _BESIDE),
    "a pause between check and effect": (
        election(broken(may_touch_after=True), expired=1),
        _OLD_EFFECT,
    ),
    "an operator deletes the leader's znode, effects are not fenced": (
        election(broken(counts_unfenced=True), deleted=1),
        _BESIDE,
    ),
    # ---- the program
    "released before the code has returned": (election(told=1, decided=_TOLD), _RELEASED),
    "a lost claim taken for a win": (election(cuts=1, decided=_FAILED_WINS), _NUMBER),
    "a lost claim repeated, not looked for in the record": (
        election(cuts=1, confirms=False),
        _REPEATED,
    ),
    "a claim leaves no record": (election(records=False), _NUMBER),
    "paused work resumes when the connection is back": (
        election(cuts=1, decided=_RESUMES),
        "paused work resumes without a proof",
    ),
    "a znode of another session taken for mine": (
        election(replaced=1, expired=1, compares_session=False),
        _BESIDE,
    ),
    "a session given up before its term is told": (
        election(replaced=1, tells_first=False),
        _BESIDE,
    ),
    "a unit begins without a look at the clock": (
        election(expired=1, looks_before_unit=False),
        "a unit begins after its lease",
    ),
    "nobody lists again after a watch": (
        election(looks_by_time=False, decided=_LISTS_NOT),
        _WEDGED,
    ),
    "an ousted leader keeps its place": (election(decided=_STAYS), _WEDGED),
    "one that is passed over keeps its place, and looks no more": (
        election(passed=1, looks_by_time=False, decided=_LOOKS_NOT),
        _WEDGED,
    ),
    "a lost release is not repeated": (election(cuts=1, decided=_RELEASES_ONCE), _WEDGED),
    # ---- the proof that a session lives
    "the lease of before, from an acknowledged write": (LeaseModel(any_write=True), _LEASE),
    "the same, with ticks of T/6": (LeaseModel(World(12, 1, True), any_write=True), _LEASE),
    "j is sent before half a tick is over": (LeaseModel(waits_half_a_tick=False), _LEASE),
    "there is no j": (LeaseModel(waits_for_j=False), _LEASE),
    "there is no k": (LeaseModel(needs_k=False), _LEASE),
    "the lease is measured from the answer": (LeaseModel(from_answer=True), _LEASE),
    "the lease lasts for T": (LeaseModel(trusted=12), _LEASE),
    "a clock that stands still": (LeaseModel(broken(12, 3, True, may_lose_time=True)), _LEASE),
    "ticks longer than the client believes": (LeaseModel(tick=4), _LEASE),
    "the leader of the ensemble answers before it pings": (
        LeaseModel(broken(12, 3, True, ping_lags=1)),
        _LEASE,
    ),
    "a unit lives for another T/8 after 11T/12": (LeaseModel(guardian=True, trusted=11), _UNIT),
}
CONTROLS = [Control(name, *what) for name, what in _CONTROLS.items()]
