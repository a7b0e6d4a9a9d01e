"""Negative controls: edits of the program that simulated lives must notice.

The ordinary test leads the life that was found to show it, and searches from the first if the
program has changed since.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from leaderq.base import clock
from leaderq.election import enlistment
from leaderq.election.campaign import Campaign
from leaderq.election.decision import Input
from leaderq.election.enlistment import Enlistment, WonClaim
from leaderq.election.tenure import Tenure
from leaderq.errors import Deposed
from leaderq.running.event_loop import EventLoop, Scope
from leaderq.running.runner import Runner
from leaderq.running.watchdog import Intervention, Watchdog
from leaderq.term import Reason, Term
from leaderq.testing.nemesis.history import Kind
from leaderq.threads import primitives
from leaderq.zookeeper import Check
from leaderq.zookeeper.proof import Proof, Shares
from leaderq.zookeeper.pulse import Pulse
from leaderq.zookeeper.seat import Seat
from simulation.control import NegativeControl, around, patched, together
from simulation.elections import CUT_OFF, ElectionLife, lead

_of = partial(NegativeControl, lead=lead, make=ElectionLife)


def _write_unfenced(self: Tenure, term: Any, ops: Any) -> Any:
    return self._session.multi(list(ops), timeout_s=5.0)


@around(Enlistment, "claim")
def _lost_claim_is_a_win(real: Any, self: Enlistment) -> Input:
    found: Input = real(self)
    if found is Input.FAILED and self.position is not None and self._owner is not None:
        record = self._next_record(self.position.name)
        seat = Seat(self._session, self._layout.candidate(self.position.name), self._owner)
        proof = Proof(self._owner, self._session.shares, clock.now_s())
        self.won = WonClaim(record, seat, proof, False, self._wishes)
        return Input.WON
    return found


@around(Pulse, "_written")
def _a_failed_write_counts(real: Any, self: Pulse, wanted: Proof, future: Any, answer: Any) -> None:
    done: Any = primitives.Future()
    done.set_result([])
    real(self, wanted, future, done if answer.exception() else answer)


def _a_failed_sync_counts(self: Pulse, wanted: Proof, future: Any, answer: Any) -> None:
    known_s = clock.now_s() if answer.exception() else wanted.known_s
    self._written(replace(wanted, known_s=known_s), future, answer)


def _any_acknowledged_write(self: Pulse) -> Any:
    """The lease as it was: two thirds of T from a write that is acknowledged."""
    future: Any = primitives.Future()
    shares = self._shares()
    early_s = clock.now_s() - (shares.trusted_s - shares.timeout_s * 2 / 3)
    wanted = Proof(self._session(), shares, early_s)
    answer = self._requests.multi_async([Check("/")])
    answer.add_done_callback(lambda done: self._written(wanted, future, done))
    return future


@around(Runner, "_term_ending")
def _released_before_the_code_has_returned(real: Any, self: Runner, term: Any) -> None:
    real(self, term)
    if term is self._term:
        self._candidate.step_down(term.reason, term=term)
        tenure = self._candidate._campaign.tenure
        if tenure is not None:
            self._session.delete_async(tenure.seat.path)


@around(enlistment, "position_of")
def _nobody_in_front_matters(real: Any, guid: str, names: Any) -> Any:
    found = real(guid, names)
    return None if found is None else replace(found, ahead=None)


@around(Watchdog, "look")
def _guardian_spares(real: Any, self: Watchdog, now_s: float, *, stopped: bool) -> Any:
    seen, what = real(self, now_s, stopped=stopped)
    return seen, Intervention.LEAVE_ALONE if what is Intervention.KILL else what


@around(enlistment, "SetData")
def _of_any_version(real: Any, path: str, data: bytes, version: int = -1) -> Any:
    return real(path, data)


@around(Enlistment, "_next_record")
def _first_record(real: Any, self: Enlistment, name: str) -> Any:
    self._highest = self._newest.number
    return replace(real(self, name), number=self._newest.number or 1)


def _ends_late(self: Shares) -> float:
    return 2 * self.timeout_s


def _blind_check(self: Term) -> None:
    if self._over:
        raise Deposed(term=self.number, reason=self._reason or Reason.LEASE)


def _blind_wait(self: Term, seconds: float) -> bool:
    return not self.ending.wait(seconds)


async def _nothing(_scope: Any, _why: str, **_flags: Any) -> None:
    return


def _strangers(_loop: EventLoop, executor: Any, function: Any, *given: Any) -> Any:
    return asyncio.wrap_future((executor or _loop._pool).submit(function, *given))


_ALONE = {"has_guardian": False, "polite": True}
_IN_COROUTINES = {"in_coroutines": True, "faults": 8}
_UNWATCHED = {"has_guardian": False, "fenced_only": True}

CONTROLS = (
    _of(
        "a leader's write is not fenced",
        patched(Tenure, "write", _write_unfenced),
        seed=56,
        life={**_UNWATCHED, "kinds": (Kind.FREEZE_WORKER, Kind.END_SESSION), "faults": 12},
    ),
    _of("a lease lasts for 2T", patched(Shares, "trusted_s", property(_ends_late)), seed=1153),
    _of(
        "a claim whose answer was lost is taken for a win",
        _lost_claim_is_a_win,
        seed=15,
        life={"kinds": (Kind.LOSE_CLAIM, Kind.KILL_WORKER), "faults": 10},
    ),
    _of(
        "a failed proof prolongs the lease",
        together(_a_failed_write_counts, patched(Pulse, "_synced", _a_failed_sync_counts)),
        seed=65,
        life={"kinds": (Kind.BLACK_HOLE, Kind.RESET), "faults": 25},
    ),
    _of(
        "the place in line is given up before the code has returned",
        _released_before_the_code_has_returned,
        seed=26,
    ),
    _of(
        "an acknowledged write is taken for a proof",
        patched(Pulse, "prove", _any_acknowledged_write),
        seed=295,
        life={**CUT_OFF, "ticks": 6, "kinds": (Kind.STALL_AND_CUT,)},
    ),
    _of("whoever is in front does not matter", _nobody_in_front_matters, seed=0),
    _of(
        "neither the guardian nor the worker itself ends what is overdue",
        together(_guardian_spares, patched(Shares, "handover_s", property(_ends_late))),
        seed=5,
    ),
    _of("a claim does not count the term", together(_of_any_version, _first_record), seed=0),
    _of(
        "nobody looks again at who is in front",
        together(
            patched(Enlistment, "_watch", lambda _self, _ahead: Input.BEHIND),
            patched(Campaign, "_look_later", lambda _self: None),
        ),
        seed=201,
    ),
    _of(
        "a term does not look at the clock",
        together(patched(Term, "check", _blind_check), patched(Term, "wait", _blind_wait)),
        seed=4,
        life={**_ALONE, "kinds": (Kind.FREEZE_WORKER, Kind.FREEZE_BOTH), "faults": 8},
    ),
    _of(
        "what a unit or a term leaves behind lives on",
        patched(Scope, "end", _nothing),
        seed=2,
        life=_IN_COROUTINES,
    ),
    _of(
        "calls in threads are not waited for",
        patched(EventLoop, "_run_in_executor", _strangers),
        seed=0,
        life=_IN_COROUTINES,
    ),
)
