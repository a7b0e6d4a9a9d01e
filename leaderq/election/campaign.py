"""What a candidate's thread does: signals in, effects out.

Used by that one thread only. It keeps what a signal says beyond its row in the table, and carries
out each effect with the :class:`~leaderq.election.enlistment.Enlistment` (while not leading) or the
:class:`~leaderq.election.tenure.Tenure` (while leading). What others must learn of it leaves
through :class:`Reports`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from leaderq.clock import now_s
from leaderq.election.decision import Effect, Input, Role, step
from leaderq.election.enlistment import Enlistment
from leaderq.election.layout import Layout, Wishes, WishesDecoder
from leaderq.election.tenure import Tenure
from leaderq.errors import SessionClosed
from leaderq.events import Event, Stage, Standing, TermBegan, TermEnded, TermEnding, Withdrawn, WorkPaused, WorkResumed
from leaderq.term import OpenTerm, Reason, Term
from leaderq.threads.backoff import Backoff, BackoffPolicy
from leaderq.zookeeper import Session

log = logging.getLogger(__name__)

_RETRIES = BackoffPolicy(first_s=0.05, most_s=1.0)
_HANDOVER_SHOWN_AFTER_S = 0.05
_OPERATOR_PAUSED = "an operator paused the career"

Request = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Reports:
    """Who hears: of every event, of a term won, of a term given back (number, clean), of a change
    of role.
    """

    event: Callable[[Event], None]
    won: Callable[[OpenTerm], None]
    concluded: Callable[[int, bool], None]
    role: Callable[[Role], None]


class Campaign:
    """One candidate's standing for election, term after term.

    ``inbox`` takes a signal, or a request to be called, from any thread and has this campaign's
    thread hear it later.
    """

    def __init__(
        self,
        session: Session,
        layout: Layout,
        candidate: str,
        *,
        inbox: Callable[[Input | Request], None],
        reports: Reports,
    ) -> None:
        self._session = session
        self._layout = layout
        self._career = layout.career
        self._id = candidate
        self._inbox = inbox
        self._reports = reports
        self._decoder = WishesDecoder(layout.control)
        self._enlistment = Enlistment(session, layout, candidate, self._decoder, changed=lambda: inbox(Input.CHANGED))
        self._role = Role.RESTING
        self._tenure: Tenure | None = None
        self._reason: Reason | None = None
        self._silent = False
        self._operator_paused = False
        self._released = False
        self._retry_at_s: float | None = None
        self._backoff = Backoff(_RETRIES)
        self._announce_at_s: float | None = None

    @property
    def tenure(self) -> Tenure | None:
        """The term in hand, won and not yet given back."""
        return self._tenure

    # ---- signals --------------------------------------------------------------------------------

    def wake_in_s(self, at_s: float) -> float | None:
        """How long nothing is due for; ``None``: until the next signal."""
        wakes = [at for at in (self._retry_at_s, self._announce_at_s) if at is not None]
        if self._tenure is not None and self._role.holds_term:
            wakes.append(self._tenure.lease.wake_s(at_s))
        return max(0.0, min(wakes) - at_s) if wakes else None

    def due(self, at_s: float) -> Input | None:
        """The input that the clock has at ``at_s``; sends the renewals that are due on the way."""
        if self._tenure is not None and self._role.holds_term:
            signal = self._tenure.signal_due(at_s)
            if signal is Input.LEASE_OVER or (signal is Input.LATE and self._role is Role.LEADING):
                return signal
            if at_s >= self._tenure.lease.renew_s:
                self._tenure.renew(at_s)
            if self._announce_at_s is not None and at_s >= self._announce_at_s:
                self._announce_at_s = None
                self._tenure.announce(Stage.HANDOVER)
        else:
            self._announce_at_s = None
        if self._retry_at_s is not None and at_s >= self._retry_at_s:
            self._retry_at_s = None
            return Input.RETRY
        return None

    def take(self, signal: Input | None) -> None:
        """Decide what ``signal`` means, and do it, and so on with what comes of that."""
        while signal is not None:
            self._note(signal)
            role, effects = step(self._role, signal)
            if role is not self._role:
                log.debug("candidate %r of %r: %s -> %s", self._id, self._career, self._role.name, role.name)
                self._role = role
                self._reports.role(role)
            signal = None
            for effect in effects:
                signal = self._carry_out(effect) or signal

    def _note(self, signal: Input) -> None:
        """Keep what a signal says beyond its row in the table."""
        if signal is Input.WITHDRAW:
            self._reason = self._reason or Reason.WITHDRAWN
        elif signal is Input.CONNECTED:
            self._enlistment.forget_watch()
            if self._tenure is not None:
                self._tenure.read_wishes()
        elif signal in (Input.ENLISTED, Input.BEHIND, Input.WON, Input.RELEASED):
            self._backoff.reset()

    # ---- effects --------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> Input | None:
        deposed_for = effect.deposes_for
        if deposed_for is not None:
            self._end_term(deposed_for)
            return None
        return _ACTIONS[effect](self)

    def _survey(self) -> Input:
        known = self._enlistment.position
        signal = self._enlistment.survey()
        if self._enlistment.position is not None and (known is None or known.name != self._enlistment.position.name):
            self._reports.event(Standing(self._career, self._id, self._enlistment.position.name))
        return signal

    def _begin_term(self) -> None:
        won = self._enlistment.won
        assert won is not None  # WON follows a claim
        self._tenure = Tenure(
            self._session,
            won,
            self._layout,
            self._decoder,
            tell=self._inbox,
            hear_wishes=lambda wishes: self._inbox(lambda: self._apply_wishes(wishes)),
        )
        self._reason = None
        self._silent = self._operator_paused = self._released = False
        term = self._tenure.term
        # The session may have been told a shorter time-out between the claim and here, when nobody
        # was there to hear it.
        self._tenure.grant(self._session.timeout_s)
        self._reports.event(TermBegan(self._career, self._id, term.number, won.unclean))
        if won.wishes.paused:
            self._operator_paused = True
            self._show_pause(_OPERATOR_PAUSED)
        self._reports.won(term)
        self._tenure.open()

    def _renew(self) -> None:
        if self._tenure is not None:
            self._tenure.renew(now_s())

    def _fall_silent(self) -> None:
        self._silent = True
        self._show_pause("ZooKeeper has not acknowledged a write lately")

    def _hear_again(self) -> None:
        self._silent = False
        self._show_pause("")

    def _show_pause(self, why: str) -> None:
        if self._tenure is None:
            return
        term = self._tenure.term
        paused = self._silent or self._operator_paused
        if paused != term.paused:
            term.pause(paused)
            event = WorkPaused(self._career, self._id, term.number, why) if paused else None
            self._reports.event(event or WorkResumed(self._career, self._id, term.number))

    def _wind_up(self) -> None:
        self._end_term(self._reason or Reason.WITHDRAWN)

    def _end_term(self, reason: Reason) -> None:
        if self._tenure is None:
            return
        term = self._tenure.term
        term.wind_up(reason)
        if reason.deposes:
            self._enlistment.finish()
        self._reports.event(TermEnding(self._career, self._id, term.number, term.reason or reason))

    def _release(self) -> Input:
        tenure = self._tenure
        signal = (
            self._enlistment.leave()
            if tenure is None
            else self._enlistment.give_back(tenure.record, tenure.term.reason or Reason.WITHDRAWN)
        )
        self._released = signal is Input.RELEASED
        return signal

    def _rest(self) -> None:
        self._retry_at_s = self._announce_at_s = None
        tenure, self._tenure = self._tenure, None
        self._reason = None
        if tenure is None:
            self._reports.event(Withdrawn(self._career, self._id))
            return
        tenure.close()
        term = tenure.term
        reason = term.reason or Reason.WITHDRAWN
        clean = self._released and not reason.deposes
        term.close()
        self._reports.event(TermEnded(self._career, self._id, term.number, reason, clean))
        self._reports.concluded(term.number, clean)

    def _retry_soon(self) -> None:
        # Jitter: a whole line of candidates finds the quorum back at the same moment.
        self._retry_at_s = now_s() + self._backoff.next_s()

    def _look_later(self) -> None:
        self._retry_at_s = now_s() + self._session.timeout_s

    def _drop_connection(self) -> None:
        with suppress(SessionClosed):  # by its owner: LOST follows
            self._session.drop_connection()

    # ---- requests -------------------------------------------------------------------------------

    def _apply_wishes(self, wishes: Wishes) -> None:
        if self._tenure is None:
            return
        self._operator_paused = wishes.paused
        self._show_pause(_OPERATOR_PAUSED)
        if wishes.step_down == self._tenure.term.number:
            self.tell_to_end(Reason.TRANSFER if wishes.successor else Reason.STEP_DOWN)

    def tell_to_end(self, reason: Reason, term: Term | None = None) -> None:
        """Wind up the term in hand, if it is ``term`` or no term is given, for ``reason``."""
        if self._tenure is None or term not in (None, self._tenure.term):
            return
        self._reason = self._reason or reason
        self.take(Input.TOLD)

    def announce(self, term: OpenTerm, stage: Stage) -> None:
        """Publish the stage of ``term``, unless it is over.

        A hand-over is published only if it takes a while: otherwise that write would stand in the
        way of the release.
        """
        if self._tenure is None or self._tenure.term is not term or not self._role.holds_term:
            return
        if stage is Stage.HANDOVER:
            self._announce_at_s = now_s() + _HANDOVER_SHOWN_AFTER_S
        else:
            self._tenure.announce(stage)

    def leave(self) -> bool:
        """Take every znode of this candidacy out of the line, whatever the role; returns whether
        that is done.
        """
        if self._tenure is not None:
            self._tenure.close()
        return self._enlistment.leave() in (Input.RELEASED, Input.LOST)

    def conclude(self, term: OpenTerm) -> None:
        """Give ``term`` back: no code works on it any more."""
        if self._tenure is not None and self._tenure.term is term:
            # Before the release is sent: as soon as it is carried out somebody else leads, whenever
            # we hear of it.
            term.close()
            self._enlistment.finish()
            self.take(Input.HANDED_OVER)


_ACTIONS: dict[Effect, Callable[[Campaign], Input | None]] = {
    Effect.ENLIST: lambda campaign: campaign._enlistment.enlist(),
    Effect.REQUEUE: lambda campaign: campaign._enlistment.requeue(),
    Effect.SURVEY: Campaign._survey,
    Effect.CLAIM: lambda campaign: campaign._enlistment.claim(),
    Effect.BEGIN_TERM: Campaign._begin_term,
    Effect.RENEW: Campaign._renew,
    Effect.PAUSE: Campaign._fall_silent,
    Effect.RESUME: Campaign._hear_again,
    Effect.WIND_UP: Campaign._wind_up,
    Effect.DROP_CONNECTION: Campaign._drop_connection,
    Effect.RELEASE: Campaign._release,
    Effect.RETRY_SOON: Campaign._retry_soon,
    Effect.LOOK_LATER: Campaign._look_later,
    Effect.REST: Campaign._rest,
}
