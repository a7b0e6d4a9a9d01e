"""One leader, its server, and the leader of the ensemble: does the lease outlive the session?

Time is finer here than in :mod:`model.election`: T is 12 units, so that each share of T in the
program (2T/3, T/3, T/6, and T/12 as the margin) is a whole number. The lease is the real
:class:`leaderq.election.tenure.Lease`. A client and its server count as one: a slow way between
them only makes a lease end earlier.

In the plain model a write that reaches the server is known to the ensemble's leader, as
:meth:`model.assumptions.World.known_after` says. With ``follower`` it is not: the server is a
follower, and what it has heard reaches the leader with its answers to pings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from leaderq.election.tenure import Lease, LeaseState
from model.assumptions import World
from model.search import Violated

PING = -1  # in a queue between the servers; writes are there by their age
PONG = -2
PONG_TOUCHED = -3  # an answer that names the session


class Way(NamedTuple):
    """A state: a leader with its lease, and what is on its way between two servers."""

    heard: int = 0  # since the last acknowledged write was sent, on the leader's clock
    sent: int = 0
    steady: int = 0  # for how long the leader's clock has lost nothing
    over: bool = False
    silent: int = 0  # since the last touch that the ensemble's leader knows of
    phase: int = 0  # since its last ping
    touched: bool = False  # what the follower will say with its next answer
    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()


@dataclass(frozen=True)
class LeaseModel:
    """The model. ``guardian``: units do not ask, the guardian ends them. ``claimed_after``: the age
    of the last touch that counts when the term is claimed.
    """

    world: World = field(default_factory=lambda: World(12, half_tick=3, drifts=True))
    follower: bool = False
    guardian: bool = False
    from_answer: bool = False
    claimed_after: int | None = None
    open_writes: int = 3

    def beginning(self) -> Way:
        known = self.world.known_after() if self.claimed_after is None else self.claimed_after
        return Way(silent=0 if self.follower else known, steady=self.world.timeout)

    def is_led(self, _state: Way) -> bool:
        return True

    @cached_property
    def _most(self) -> int:
        """Ages from here on are one: the lease is over, its units are dead."""
        return self._ended + self.world.killed_after()

    @cached_property
    def _ended(self) -> int:
        trust = [self._lease(age).trust(0) for age in range(self.world.timeout + 1)]
        return trust.index(LeaseState.NONE)

    @cached_property
    def _renewed_after(self) -> int:
        ages = range(self.world.timeout + 1)
        return next(age for age in ages if Lease(self.world.timeout, 0, -age).renew_s <= 0)

    def _lease(self, heard: int) -> Lease:
        """The real lease, at a clock that reads 0 now."""
        return Lease(self.world.timeout, -heard, -heard)

    # ---- moves ----------------------------------------------------------------------------------

    def moves(self, state: Way) -> Iterator[tuple[str, Way]]:
        if self.world.may_expire(state.silent):
            label = "the session ends, and another candidate leads"
            if state.heard < (self._most if self.guardian else self._ended):
                why = "a unit is not dead yet" if state.over else "the lease is not over yet"
                raise Violated(f"the session has ended: {why}", label)
        writes = sum(each >= 0 for each in (*state.up, *state.down))
        if state.sent >= self._renewed_after and writes < self.open_writes and not state.over:
            sent = state._replace(sent=0, touched=self.follower, up=(*state.up, 0))
            yield "the leader sends a renewal", sent
        if state.up:
            yield self._at_the_leader(state)
        if state.down:
            yield self._at_the_server(state)
        yield "time passes", self._later(state, stands_still=False)
        if not state.over and self.world.may_lose_time(state.steady):
            label = "time passes, the leader's clock stands still"
            yield label, self._later(state, stands_still=True)

    def _at_the_leader(self, state: Way) -> tuple[str, Way]:
        first, up = state.up[0], state.up[1:]
        if first in (PONG, PONG_TOUCHED):
            silent = 0 if first == PONG_TOUCHED else state.silent
            label = "the follower's answer to a ping reaches the ensemble's leader"
            return label, state._replace(up=up, silent=silent)
        silent = state.silent if self.follower else min(state.silent, self.world.known_after())
        down = (*state.down, first)
        return "a renewal is carried out", state._replace(up=up, down=down, silent=silent)

    def _at_the_server(self, state: Way) -> tuple[str, Way]:
        first, down = state.down[0], state.down[1:]
        if first == PING:
            pong = PONG_TOUCHED if state.touched else PONG
            label = "the follower answers a ping"
            return label, state._replace(down=down, up=(*state.up, pong), touched=False)
        label = "the leader hears that a renewal is acknowledged"
        if state.over:  # a passed deadline is final
            return label, state._replace(down=down)
        sent = 0 if self.from_answer else first
        heard = int(-self._lease(state.heard).acknowledged(-sent).heard_s)
        return label, state._replace(down=down, heard=heard)

    def _later(self, state: Way, *, stands_still: bool) -> Way:
        silent = min(state.silent + 1, self.world.timeout)
        phase, down = state.phase, state.down
        if self.follower:
            phase += 1
            if phase == self.world.pings_every():
                phase = 0
                # Two pings in a row are answered at once: as good as one.
                down = down if down and down[-1] == PING else (*down, PING)
        steady = min(state.steady + 1, self.world.timeout)
        state = state._replace(silent=silent, phase=phase, down=down, steady=steady)
        if stands_still:
            return state._replace(steady=0)
        heard = min(state.heard + 1, self._most)
        return state._replace(
            heard=heard,
            sent=min(state.sent + 1, self._renewed_after),
            over=state.over or heard >= self._ended,
            up=self._older(state.up),
            down=self._older(down),
        )

    def _older(self, queue: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([each if each < 0 else min(each + 1, self._ended) for each in queue])

    def shown(self, state: Way) -> str:
        lease = "over" if state.over else f"{self._ended - state.heard} left"
        return (
            f"lease {lease}, the ensemble's leader last knew of the session {state.silent} ago,"
            f" to it {_queue(state.up)}, from it {_queue(state.down)}"
        )


def _queue(queue: tuple[int, ...]) -> str:
    names = {PING: "ping", PONG: "pong", PONG_TOUCHED: "pong that names the session"}
    told = [names.get(each, f"renewal sent {each} ago") for each in queue]
    return ", ".join(told) or "nothing"
