"""What the model assumes of the world: each assumption is one function, and its docstring's first
paragraph is the sentence that the documentation quotes.

A world may do whatever these functions allow, at any time and in any order: an answer may be lost
or late, a process may pause between any two steps and go on later. A negative control
(:mod:`model.controls`) is a world with one of these functions changed.

Times are whole numbers, in shares of the session time-out T (:attr:`World.timeout` of them are T).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

Assumed = TypeVar("Assumed", bound=Callable[..., object])

_FUNCTIONS: list[Callable[..., object]] = []


def assumption(function: Assumed) -> Assumed:
    """Mark ``function`` as an assumption: its sentence is quoted in the documentation."""
    _FUNCTIONS.append(function)
    return function


def sentences() -> list[str]:
    """The assumptions, in the order in which they stand in this file."""
    return [
        " ".join(inspect.cleandoc(f.__doc__ or "").split("\n\n")[0].split()) for f in _FUNCTIONS
    ]


@dataclass(frozen=True)
class World:
    """The world as the program assumes it. ``half_tick`` is in units of time,
    ``drifts`` says whether clocks may lose any.
    """

    timeout: int = 3
    half_tick: int = 0
    drifts: bool = False

    # ---- sessions and time ----------------------------------------------------------------------

    @assumption
    def may_expire(self, silent: int) -> bool:
        """ZooKeeper ends a session no earlier than T after the last touch that the leader of the
        ensemble knows of.

        ``silent`` is the time since that touch. It may end it at any later time, or never.
        """
        return silent >= self.timeout

    @assumption
    def may_lose_time(self, steady: int) -> bool:
        """In a time of T the clock of a client loses or gains at most T/24 against the clocks of
        the servers; it does not stand still while its host is paused.

        ``steady`` is for how long it has not lost or gained a unit. One unit is more than that
        in the models; they allow it only where the margin is that large.
        """
        return self.drifts and steady >= self.timeout

    def may_gain_time(self, steady: int) -> bool:
        return self.drifts and steady >= self.timeout

    # ---- requests -------------------------------------------------------------------------------

    @assumption
    def is_served(self, session: int, living: tuple[tuple[int, int], ...]) -> bool:
        """With a session its ephemeral znodes vanish, and no request of it is carried out
        afterwards.
        """
        return any(session == each for each, _ in living)

    @assumption
    def passes(self, node: int, standing: tuple[int, ...]) -> bool:
        """A multi is carried out as a whole or not at all, and its check is refused once the znode
        is gone.

        ``node`` is the znode that the multi checks.
        """
        return node in standing

    @assumption
    def is_version(self, seen: tuple[int, ...], found: tuple[int, ...]) -> bool:
        """A write that names a version is refused if the record was written since that version."""
        return seen == found

    @assumption
    def answers_in_order(self) -> bool:
        """The requests and the answers of one connection keep their order; when it breaks, its
        open requests are lost, but one of them may be carried out later, as long as the session
        lives, and all answers on the way are lost.

        A path is never used twice, and a new znode stands at the end of the line.
        """
        return True

    @assumption
    def reads_at_once(self) -> bool:
        """A survey reads the line and the record as they were at one instant, between its request
        and its answer.
        """
        return True

    # ---- people and processes -------------------------------------------------------------------

    @assumption
    def may_touch_after(self, checked: bool) -> bool:
        """An effect without a fence happens at the instant at which the term was checked: no pause
        falls between the check and the effect.

        ``checked``: the term passes ``check()`` now.
        """
        return checked

    @assumption
    def counts_unfenced(self, deleted: bool) -> bool:
        """Nobody deletes the znode of a leader by hand; where somebody does, only fenced effects
        are refused.
        """
        return not deleted

    @assumption
    def is_mended(self) -> bool:
        """In the end connections come back, processes that died are started again, and sessions
        that nobody uses any more end.

        Without it nothing could be said about who leads next.
        """
        return True

    # ---- between the servers --------------------------------------------------------------------

    @assumption
    def pings_every(self) -> int:
        """The leader of the ensemble sends a ping to each server every half tick; a tick is at most
        T/2, or as long as the setting says.
        """
        return max(1, self.half_tick)

    @assumption
    def ping_lags(self) -> int:
        """After a pause the leader of the ensemble sends the ping that is due before it answers
        what came later.
        """
        return 0

    @assumption
    def knows_only_by_pongs(self) -> bool:
        """The answer to a ping names the sessions that the server has heard since its last answer,
        and this touches them; so does a new connection, but not a request that is passed on.
        """
        return True

    @assumption
    def led_with_a_quorum(self) -> bool:
        """A quorum agrees to a write only under the newest leader of the ensemble, and a new leader
        gives every session its whole T.

        The lease model has one leader of the ensemble, because of this.
        """
        return True

    @assumption
    def keeps_order_between_servers(self) -> bool:
        """What one server sends to another arrives in the order in which it was sent, at any later
        time, or from some moment on not at all.
        """
        return True

    # ---- the guardian ---------------------------------------------------------------------------

    @assumption
    def killed_after(self) -> int:
        """With the guardian a unit that does not ask is dead T/8 after the lease, on the clock of
        its host, and T/24 more is enough for the kill itself.
        """
        return self.timeout // 8
