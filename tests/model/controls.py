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


_TOLD = {(Role.LEADING, Input.TOLD): (Role.RELEASING, (Effect.WIND_UP, Effect.RELEASE))}
_FAILED_WINS = {(Role.CLAIMING, Input.FAILED): (Role.LEADING, (Effect.BEGIN_TERM,))}
_RESUMES = {(Role.SUSPECT, Input.CONNECTED): (Role.LEADING, (Effect.RESUME,))}
_LISTS_NOT = {(Role.WAITING, Input.CHANGED): (Role.WAITING, ())}
_STAYS = {(Role.OUSTED, Input.HANDED_OVER): (Role.OUSTED, ())}
_LOOKS_NOT = {(Role.WAITING, Input.PASSED_OVER): (Role.WAITING, ())}
_SIGNALS = Input.FAILED, Input.CONNECTED, Input.STAND
_RELEASES_ONCE = {(Role.RELEASING, each): (Role.RELEASING, ()) for each in _SIGNALS}

# By the rule that is violated: in elections by the world or the program, then in a lease.
_CONTROLS: dict[str, dict[str, Election | LeaseModel]] = {
    "a fenced write of an old term passes": {
        "no fence": election(broken(passes=True), deleted=1, writes=1),
    },
    "a term is inaugurated while an older one passes check()": {
        "a session ends before T": election(ShortSessions(), expired=1),
        "no assumption about clock rates": election(broken(may_lose_time=True), expired=1),
        "an operator deletes the leader's znode, effects are not fenced": election(
            broken(counts_unfenced=True), deleted=1
        ),
        "a znode of another session taken for mine": election(
            replaced=1, expired=1, compares_session=False
        ),
        "a session given up before its term is told": election(replaced=1, tells_first=False),
    },
    "an effect of an old term comes after the next inauguration": {
        "a pause between check and effect": election(broken(may_touch_after=True), expired=1),
    },
    "the leadership is released while the user's code runs": {
        "released before the code has returned": election(told=1, decided=_TOLD),
    },
    "the number of a term is not higher than those before": {
        "a lost claim taken for a win": election(cuts=1, decided=_FAILED_WINS),
        "a claim leaves no record": election(records=False),
    },
    "a claim that had been carried out is made a second time": {
        "a lost claim repeated, not looked for in the record": election(cuts=1, confirms=False),
    },
    "paused work resumes without a proof": {
        "paused work resumes when the connection is back": election(cuts=1, decided=_RESUMES),
    },
    "a unit begins after its lease": {
        "a unit begins without a look at the clock": election(expired=1, looks_before_unit=False),
    },
    "nobody can ever lead again": {
        "nobody lists again after a watch": election(looks_by_time=False, decided=_LISTS_NOT),
        "an ousted leader keeps its place": election(decided=_STAYS),
        "one that is passed over keeps its place, and looks no more": election(
            passed=1, looks_by_time=False, decided=_LOOKS_NOT
        ),
        "a lost release is not repeated": election(cuts=1, decided=_RELEASES_ONCE),
    },
    "the session has ended: the lease is not over yet": {
        "the lease of before, from an acknowledged write": LeaseModel(any_write=True),
        "the same, with ticks of T/6": LeaseModel(World(12, 1, True), any_write=True),
        "j is sent before half a tick is over": LeaseModel(waits_half_a_tick=False),
        "there is no j": LeaseModel(waits_for_j=False),
        "there is no k": LeaseModel(needs_k=False),
        "the lease is measured from the answer": LeaseModel(from_answer=True),
        "the lease lasts for T": LeaseModel(trusted=12),
        "a clock that stands still": LeaseModel(broken(12, 3, True, may_lose_time=True)),
        "ticks longer than the client believes": LeaseModel(tick=4),
        "the leader of the ensemble answers before it pings": LeaseModel(
            broken(12, 3, True, ping_lags=1)
        ),
    },
    "the session has ended: a unit is not dead yet": {
        "a unit lives for another T/8 after 11T/12": LeaseModel(guardian=True, trusted=11),
    },
}
CONTROLS = [
    Control(name, model, rule)
    for rule, models in _CONTROLS.items()
    for name, model in models.items()
]
