"""One session, its server, and the leader of the ensemble: does trust outlive the session?

Time is finer here than in :mod:`model.election`: T is 12 units, so that each share of T in the
program is a whole number, or is rounded up to one. The shares and the choice of i are the real
:class:`leaderq.zookeeper.proof.Shares` and :class:`~leaderq.zookeeper.proof.Echoes`. A client and
its server count as one: a slow way between them only makes proofs come later.

One proof is followed, i, j and k or a new connection and k, because trust rests on one at a time.
Whatever else the client sends may touch the server at any time. What is on its way between the two
servers stays in order, and arrives at any time or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from leaderq.zookeeper.proof import NEVER, Echoes, Shares
from model.assumptions import World
from model.search import Violated


class Message(Enum):
    """On its way between the two servers."""

    CONNECTION = "a new connection"
    SYNC = "j"
    WRITE = "k"
    PING = "a ping"
    PONG = "a pong that names the session"


class Stage(Enum):
    """How far the proof has come."""

    NONE = "there is no proof"
    CONNECTING = "a connection is made"
    ASKED = "i is sent"
    HEARD = "i is answered"
    SYNCING = "j is sent"
    READY = "j is answered"
    WRITING = "k is sent"
    PROVEN = "k is answered"


class Way(NamedTuple):
    """A state. ``sent`` and ``answered`` are on the client's clock, ``silent`` and ``phase`` on
    that of the servers."""

    stage: Stage = Stage.NONE
    sent: int = 0  # since i was
    answered: int = 0
    steady: bool = True  # the client's clock has neither lost nor gained a unit
    silent: int = 0  # since the last touch that the leader of the ensemble knows of
    phase: int = 0  # since its last ping
    touched: bool = False  # whether the server's next answer to a ping names the session
    up: tuple[Message, ...] = ()
    down: tuple[Message, ...] = ()


@dataclass
class LeaseModel:
    """The model. ``tick``: what the client takes for the tick, in units. ``guardian``: units do not
    ask, the guardian ends them. ``trusted``: for how long, if not as the program does."""

    world: World = field(default_factory=lambda: World(12, half_tick=3, drifts=True))
    tick: int | None = None
    guardian: bool = False
    trusted: float | None = None
    # What each step of the proof is there for; a control leaves one out.
    waits_half_a_tick: bool = True
    waits_for_j: bool = True
    needs_k: bool = True
    from_answer: bool = False
    # The lease as it was before: two thirds of T from a write that was acknowledged.
    any_write: bool = False

    def beginning(self) -> Way:
        return Way()

    def is_led(self, _state: Way) -> bool:
        return True

    def __post_init__(self) -> None:
        self.shares = Shares(self.world.timeout, self.tick or 2 * self.world.half_tick)
        if self.any_write:
            self.trusted = self.world.timeout * 2 / 3
        elif self.trusted is None:
            self.trusted = self.shares.trusted_s
        self.gone = self.trusted + self.shares.gone_s - self.shares.trusted_s

    # ---- moves ----------------------------------------------------------------------------------

    def moves(self, state: Way) -> Iterator[tuple[str, Way]]:
        if state.sent >= self.gone:
            return  # it proves nothing any more
        if self.world.may_expire(state.silent):
            label = "the session ends, and another candidate leads"
            if state.stage is Stage.PROVEN:
                is_trusted = state.sent < self.trusted
                if is_trusted or self.guardian:
                    why = "the lease is not over yet" if is_trusted else "a unit is not dead yet"
                    raise Violated(f"the session has ended: {why}", label)
            return
        yield from self._at_the_client(state)
        if state.up:
            yield self._at_the_leader(state)
        if state.down:
            yield self._at_the_server(state)
        yield "time passes", self._later(state, 1, 1)
        steady = self.world.timeout if state.steady else 0  # a proof lasts no longer than T
        if self.world.may_lose_time(steady):
            yield "time passes, the client's clock stands", self._later(state, 0, 1)
        if self.world.may_gain_time(steady):
            yield "the client's clock gains a unit", self._later(state, 1, 0)

    def _at_the_client(self, state: Way) -> Iterator[tuple[str, Way]]:
        stage = state.stage
        if not state.touched:
            yield "the client sends something else", state._replace(touched=True)
        if stage is Stage.NONE and not self.any_write:
            asked = state._replace(sent=0, touched=True, stage=Stage.ASKED)
            yield "the client sends i", asked
            made = asked._replace(stage=Stage.CONNECTING, up=(*state.up, Message.CONNECTION))
            yield "the client connects", made
        elif stage is Stage.NONE:
            yield "the client sends a write", self._sent(state, Message.WRITE)._replace(sent=0)
        elif stage is Stage.ASKED:
            yield "i is answered", state._replace(stage=Stage.HEARD, answered=0)
        elif stage is Stage.HEARD and self._is_chosen(state):
            if self.waits_for_j:
                yield "the client sends j", self._sent(state, Message.SYNC)
            else:
                yield "the client sends k", self._sent(state, Message.WRITE)
        elif stage is Stage.READY:
            yield "the client sends k", self._sent(state, Message.WRITE)

    def _is_chosen(self, state: Way) -> bool:
        if not self.waits_half_a_tick:
            return True
        echoes = Echoes(NEVER, self.world.timeout)
        echoes.sent(-state.sent)
        echoes.read(-state.answered, outstanding=0)
        return echoes.newest_s(-self.shares.known_s) == -state.sent

    def _sent(self, state: Way, message: Message) -> Way:
        stage = Stage.SYNCING if message is Message.SYNC else Stage.WRITING
        return state._replace(stage=stage, answered=0, touched=True, up=(*state.up, message))

    def _at_the_leader(self, state: Way) -> tuple[str, Way]:
        first, up = state.up[0], state.up[1:]
        label = f"{first.value} reaches the leader of the ensemble"
        if first is Message.PONG:
            return label, state._replace(up=up, silent=0)
        touches = first is Message.CONNECTION or not self.world.knows_only_by_pongs()
        silent = 0 if touches else state.silent
        return label, state._replace(up=up, down=(*state.down, first), silent=silent)

    def _at_the_server(self, state: Way) -> tuple[str, Way]:
        first, down = state.down[0], state.down[1:]
        if first is Message.PING:
            label = "the server answers a ping"
            # An answer that names nobody changes nothing; two in a row are as good as the second.
            is_new = state.touched and state.up[-1:] != (Message.PONG,)
            up = (*state.up, Message.PONG) if is_new else state.up
            return label, state._replace(down=down, up=up, touched=False)
        label = f"{first.value} is answered"
        if first is Message.WRITE or (first is Message.SYNC and not self.needs_k):
            sent = 0 if self.from_answer else state.sent
            return label, state._replace(down=down, stage=Stage.PROVEN, sent=sent)
        return label, state._replace(down=down, stage=Stage.READY)

    def _later(self, state: Way, client: int, servers: int) -> Way:
        silent = min(state.silent + servers, self.world.timeout)
        phase, down = state.phase + servers, state.down
        if phase >= self.world.pings_every() + self.world.ping_lags():
            phase = 0
            # Two pings in a row are answered at once: as good as one.
            down = down if down and down[-1] is Message.PING else (*down, Message.PING)
        return state._replace(
            silent=silent,
            phase=phase,
            down=down,
            steady=state.steady and client == servers,
            sent=state.sent + client if state.stage is not Stage.NONE else 0,
            answered=state.answered + client if state.stage is Stage.HEARD else 0,
        )

    def shown(self, state: Way) -> str:
        trust = f", {self.trusted - state.sent:g} left" if state.stage is Stage.PROVEN else ""
        return (
            f"{state.stage.value}{trust}; the leader of the ensemble last knew of the session"
            f" {state.silent} ago; to it: {_queue(state.up)}; from it: {_queue(state.down)}"
        )


def _queue(queue: tuple[Message, ...]) -> str:
    return ", ".join(each.value for each in queue) or "nothing"
