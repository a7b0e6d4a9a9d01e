"""What a candidate's thread does: it takes signals and carries out effects. While it does not lead
it uses an :class:`~leaderq.election.enlistment.Enlistment`, while it leads a
:class:`~leaderq.election.tenure.Tenure`. Other threads may read ``role``, ``tenure`` and
``concluded``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from leaderq.base import clock
from leaderq.election.decision import Effect, Input, Role, step
from leaderq.election.enlistment import Enlistment
from leaderq.election.layout import EndDetails, Layout, Wishes, WishesDecoder, terms_before
from leaderq.election.software import Software, newer_in
from leaderq.election.tenure import Tenure
from leaderq.errors import SessionClosed
from leaderq.events import (
    Event,
    Stage,
    Standing,
    TermBegan,
    TermEnded,
    TermEnding,
    Withdrawn,
    WorkPaused,
    WorkResumed,
)
from leaderq.term import OpenTerm, Reason, Term
from leaderq.threads.retry import Backoff, Retry
from leaderq.zookeeper import Session

log = logging.getLogger(__name__)

_RETRIES = Retry(first_s=0.05, most_s=1.0)
_HANDOVER_SHOWN_AFTER_S = 0.05
_OPERATOR_PAUSED = "an operator paused the career"
_GOT_THROUGH = frozenset((Input.ENLISTED, Input.BEHIND, Input.WON, Input.RELEASED))

Request = Callable[[], None]


class Campaign:
    """The work of one candidate, term after term.

    ``inbox`` takes a signal, or a function that the candidate's thread must call, from any thread.
    ``tenure`` is the present term. ``concluded`` has one entry, for the term that was released
    last: its id, and whether its end was clean.
    """

    def __init__(
        self,
        session: Session,
        layout: Layout,
        candidate: str,
        *,
        inbox: Callable[[Input | Request], None],
        publish: Callable[[Event], None],
        won: Callable[[OpenTerm], None],
        ending: Callable[[OpenTerm], None],
        software: Software,
        prefers_newest: bool,
    ) -> None:
        self.role = Role.IDLE
        self.tenure: Tenure | None = None
        self.concluded: dict[str, bool] = {}
        self._session = session
        self._layout = layout
        self._career = layout.career
        self._id = candidate
        self._inbox = inbox
        self._publish = publish
        self._won = won
        self._ending = ending
        self._decoder = WishesDecoder(layout.control)
        self._enlistment = Enlistment(
            session,
            layout,
            candidate,
            self._decoder,
            changed=lambda: inbox(Input.CHANGED),
            software=software,
            prefers_newest=prefers_newest,
        )
        self._software = software
        self._prefers_newest = prefers_newest
        self._gave_way_to: set[tuple[str | None, str | None]] = set()  # as a leader
        self._silent = False
        self._wishes = Wishes()  # of the operators, as last heard
        self._released = False
        self._retry_at_s: float | None = None
        self._backoff = Backoff(_RETRIES)
        self._announce_at_s: float | None = None
        self._details = EndDetails()  # of the term in hand

    # ---- signals --------------------------------------------------------------------------------

    def wake_in_s(self, at_s: float) -> float | None:
        """How many seconds remain until something is due; ``None``: nothing is due before the next
        signal.
        """
        wakes = [at for at in (self._retry_at_s, self._announce_at_s) if at is not None]
        if self.tenure is not None and self.role.holds_term:
            wakes.append(self.tenure.wake_s(at_s))
        return max(0.0, min(wakes) - at_s) if wakes else None

    def due(self, at_s: float) -> Input | None:
        """Return the signal that is due at ``at_s``, or ``None``. Also announce a hand-over whose
        announcement is due.
        """
        if self.tenure is not None and self.role.holds_term:
            signal = self.tenure.signal_due(at_s)
            if signal is not None and (signal is Input.LEASE_OVER or self.role is Role.LEADING):
                return signal
            if self._announce_at_s is not None and at_s >= self._announce_at_s:
                self._announce_at_s = None
                self.tenure.announce(Stage.HANDOVER)
        else:
            self._announce_at_s = None
        if self._retry_at_s is not None and at_s >= self._retry_at_s:
            self._retry_at_s = None
            return Input.RETRY
        return None

    def take(self, signal: Input | None) -> None:
        """Decide on ``signal`` and carry out the effects; then do the same with each signal that
        results.
        """
        while signal is not None:
            if signal in _GOT_THROUGH:
                self._backoff.reset()
            elif signal is Input.CONNECTED:
                self._enlistment.forget_watch()
                if self.tenure is not None:
                    self.tenure.connected()
            role, effects = step(self.role, signal)
            if role is not self.role:
                log.debug("role changed career=%s id=%s role=%s", self._career, self._id, role.name)
                self.role = role
            signal = None
            for effect in effects:
                signal = _ACTIONS[effect](self) or signal

    # ---- effects --------------------------------------------------------------------------------

    def _survey(self) -> Input:
        known = self._enlistment.position
        signal = self._enlistment.survey()
        found = self._enlistment.position
        if found is not None and (known is None or known.name != found.name):
            self._publish(Standing(self._career, self._id, found.name))
        return signal

    def _begin_term(self) -> None:
        won = self._enlistment.won
        assert won is not None  # WON follows a claim
        self.tenure = Tenure(
            self._session,
            won,
            self._layout,
            self._decoder,
            tell=self._inbox,
            hear_wishes=lambda wishes: self._inbox(lambda: self._apply_wishes(wishes)),
            hear_line=lambda *heard: self._inbox(lambda: self._apply_line(*heard)),
            tell_end=lambda term, reason: self._inbox(lambda: self.tell_to_end(reason, term)),
        )
        self._silent = self._released = False
        self._wishes = won.wishes
        term = self.tenure.term
        self._publish(TermBegan(self._career, self._id, term.number, won.unclean))
        self._show_pause(_OPERATOR_PAUSED)
        self._won(term)
        self.tenure.open()

    def _set_silent(self, silent: bool) -> None:
        self._silent = silent
        if silent and self.tenure is not None:
            self.tenure.doubt()
        self._show_pause("ZooKeeper has not acknowledged a write lately")

    def _show_pause(self, why: str) -> None:
        if self.tenure is None:
            return
        term = self.tenure.term
        paused = self._silent or self._wishes.paused
        if paused != term.paused:
            term.pause(paused)
            event = WorkPaused(self._career, self._id, term.number, why) if paused else None
            self._publish(event or WorkResumed(self._career, self._id, term.number))

    def end_term(self, reason: Reason) -> None:
        if self.tenure is not None:
            term = self.tenure.term
            term.wind_up(reason)
            if reason.deposes:
                self._enlistment.take_new_mark()
            # Not by the event: an observer that fails, or blocks, must not keep it from being done.
            self._ending(term)
            self._publish(TermEnding(self._career, self._id, term.number, term.reason or reason))

    def _release(self) -> Input:
        tenure = self.tenure
        if tenure is None:
            signal = self._enlistment.leave()
        else:
            reason = tenure.term.reason or Reason.WITHDRAWN
            signal = self._enlistment.release(tenure.record, reason, self._details)
        self._released = signal is Input.RELEASED
        return signal

    def _settle(self) -> None:
        self._retry_at_s = self._announce_at_s = None
        tenure, self.tenure = self.tenure, None
        if tenure is None:
            self._publish(Withdrawn(self._career, self._id))
            return
        tenure.close()
        term = tenure.term
        reason = term.reason or Reason.WITHDRAWN
        clean = self._released and not reason.deposes
        term.close()
        self._publish(TermEnded(self._career, self._id, term.number, reason, clean))
        self.concluded = {term.id: clean}

    def _retry_soon(self) -> None:
        # Jitter: a whole line of candidates sees the quorum return at the same moment.
        self._retry_at_s = clock.now_s() + self._backoff.next_s()

    def _look_later(self) -> None:
        self._retry_at_s = clock.now_s() + self._session.timeout_s

    def _drop_connection(self) -> None:
        with suppress(SessionClosed):  # by its owner: LOST follows
            self._session.drop_connection()

    # ---- requests -------------------------------------------------------------------------------

    def _apply_wishes(self, wishes: Wishes) -> None:
        if self.tenure is None:
            return
        former, self._wishes = self._wishes, wishes
        self._show_pause(_OPERATOR_PAUSED)
        if wishes.floor != former.floor:  # which repairs a damaged record, that does not name us
            self.tenure.tell_record()
        if wishes.step_down == self.tenure.term.number:
            self.tell_to_end(Reason.TRANSFER if wishes.successor else Reason.STEP_DOWN)

    def _apply_line(self, term: Term, line: Sequence[Software]) -> None:
        """End the term if a newer version stands in line; once for each newer version."""
        if self.tenure is None or self.tenure.term is not term:
            return
        newer = newer_in(line, self._software, terms_before(self.tenure.record))
        if newer is not None and newer.release not in self._gave_way_to:
            self._gave_way_to.add(newer.release)
            log.info(
                "a candidate of a newer version stands, the term ends career=%s id=%s version=%s"
                " leaderq=%s newer=%s newer_leaderq=%s",
                *(self._career, self._id, *self._software.release, *newer.release),
            )
            self.tell_to_end(Reason.SUPERSEDED)

    def tell_to_end(self, reason: Reason, term: Term | None = None) -> None:
        """Wind up the present term for ``reason``; if ``term`` is given, only if the present term
        is ``term``.
        """
        if self.tenure is None or term not in (None, self.tenure.term):
            return
        self.tenure.term.wind_up(reason)
        self.take(Input.TOLD)

    def announce(self, term: OpenTerm, stage: Stage) -> None:
        """Publish that ``term`` has entered ``stage``. A hand-over is published only if it takes a
        while, because the release of the term must not wait for that write.
        """
        if self.tenure is None or self.tenure.term is not term or not self.role.holds_term:
            return
        if stage is Stage.HANDOVER:
            self._announce_at_s = clock.now_s() + _HANDOVER_SHOWN_AFTER_S
            return
        self.tenure.announce(stage)
        if stage is Stage.EXECUTION and self._prefers_newest:
            self.tenure.watch_line()

    def leave(self) -> bool:
        """Leave the line, in any role; return whether that succeeded."""
        if self.tenure is not None:
            self.tenure.close()
        return self._enlistment.leave() in (Input.RELEASED, Input.LOST)

    def conclude(self, term: OpenTerm, details: EndDetails | None = None) -> None:
        """Release ``term``, because no code works on it any more."""
        if self.tenure is not None and self.tenure.term is term:
            self._details = details or EndDetails()
            # Before the release is sent: once it is carried out, somebody else may lead.
            term.close()
            self._enlistment.take_new_mark()
            self.take(Input.HANDED_OVER)


_ACTIONS: dict[Effect, Callable[[Campaign], Input | None]] = {
    Effect.ENLIST: lambda campaign: campaign._enlistment.enlist(),
    Effect.REQUEUE: lambda campaign: campaign._enlistment.requeue(),
    Effect.SURVEY: Campaign._survey,
    Effect.CLAIM: lambda campaign: campaign._enlistment.claim(),
    Effect.BEGIN_TERM: Campaign._begin_term,
    Effect.PAUSE: lambda campaign: campaign._set_silent(True),
    Effect.RESUME: lambda campaign: campaign._set_silent(False),
    Effect.WIND_UP: lambda campaign: campaign.end_term(Reason.WITHDRAWN),
    Effect.DEPOSE_SESSION: lambda campaign: campaign.end_term(Reason.SESSION),
    Effect.DEPOSE_LEASE: lambda campaign: campaign.end_term(Reason.LEASE),
    Effect.DEPOSE_FENCED: lambda campaign: campaign.end_term(Reason.FENCED),
    Effect.DEPOSE_NODE_DELETED: lambda campaign: campaign.end_term(Reason.NODE_DELETED),
    Effect.DROP_CONNECTION: Campaign._drop_connection,
    Effect.RELEASE: Campaign._release,
    Effect.RETRY_SOON: Campaign._retry_soon,
    Effect.LOOK_LATER: Campaign._look_later,
    Effect.SETTLE: Campaign._settle,
}
