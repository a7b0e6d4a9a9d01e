"""What a leader does in ZooKeeper: it prolongs its lease by the session's proofs, watches its own
znode, fences its writes, and hears operators.

The lease is that of the session: as long as the leader's znode stands, nobody else can lead. The
znode stands as long as the session lives, unless somebody deletes it.
:mod:`leaderq.zookeeper.proof` says what proves that a session lives, and until when.

Only proofs prolong the lease. The term ends when the own znode is deleted, when the session ends,
or when a fence is refused. Nothing here waits, except :meth:`Tenure.write` on the career's thread,
because the candidate's thread must always be free to notice the end of the lease. Replies arrive on
ZooKeeper's threads, which only pass them on as signals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from leaderq.base import clock
from leaderq.election.decision import Input
from leaderq.election.enlistment import WonClaim
from leaderq.election.layout import Layout, Wishes, WishesDecoder, encode, in_line
from leaderq.election.software import Reading, Software, reading
from leaderq.errors import Deposed, NotConnected
from leaderq.events import Stage
from leaderq.term import OpenTerm, Reason, Term
from leaderq.threads import primitives
from leaderq.zookeeper import Operation, Session, SetData, WatchEvent, WatchKind
from leaderq.zookeeper.proof import Proof
from leaderq.zookeeper.seat import SeatLost, is_fence

Tell = Callable[[Input], None]


class Tenure:
    """Keeps up one term for its leader. ``tell`` passes a signal to the candidate's thread.

    ``seat`` is the znode that stands for this term, ``record`` is the ``term`` record as it was
    last written.
    """

    def __init__(
        self,
        session: Session,
        won: WonClaim,
        layout: Layout,
        decoder: WishesDecoder,
        *,
        tell: Tell,
        hear_wishes: Callable[[Wishes], None],
        hear_line: Callable[[Term, Sequence[Software]], None],
        tell_end: Callable[[Term, Reason], None],
    ) -> None:
        self._session = session
        self.seat = won.seat
        self.record = won.record
        self._layout = layout
        self._decoder = decoder
        self._tell = tell
        self._hear_wishes = hear_wishes
        self._hear_line = hear_line
        self._is_chosen = won.is_chosen
        self._line_due_s: float | None = None  # when to look again; None: nobody is looked at
        self._proof = won.proof
        self._closed = False
        self._let_go: Callable[[], None] = lambda: None
        self._own_watch_set = False
        self._is_doubted = False
        self.term = OpenTerm(
            number=won.record.number,
            id=str(won.record.id),
            career=layout.career,
            candidate=str(won.record.candidate),
            deadline=won.proof.trusted_until_s,
            write=self.write,
            unclean=won.unclean,
            tell_end=tell_end,
        )

    def open(self) -> None:
        """Let the session be proven, watch the own znode, and read the operators' wishes."""
        self._let_go = self._session.pulse.hold(self._proven)
        self._watch_own()
        self.read_wishes()

    def close(self) -> None:
        """Ignore all replies and watches that arrive later."""
        self._closed = True
        self._let_go()

    def doubt(self) -> None:
        """Tell ``HEARD`` with the next proof, which is asked for now."""
        self._is_doubted = True
        self._session.pulse.prove()

    def signal_due(self, at_s: float) -> Input | None:
        """The signal that is due at ``at_s`` by the clock alone, or ``None``."""
        if self.term.remaining_s() <= 0:
            return Input.LEASE_OVER
        return Input.LATE if at_s >= self._proof.late_s else None

    def wake_s(self, at_s: float) -> float:
        """When something is due next: the lack of a proof becomes suspicious, or the lease ends."""
        late_s = self._proof.late_s
        return late_s if late_s > at_s else self.term.deadline

    def connected(self) -> None:
        """After a reconnection, set the lost watches again, and read again what they were about."""
        if not self._own_watch_set:
            self._watch_own()
        self.read_wishes()
        if self._line_due_s is not None:
            self._look_at_line(self._on_line)

    def announce(self, stage: Stage) -> None:
        """Write the stage into the ``term`` record, fenced."""
        self.record = replace(self.record, stage=stage.value)
        self.tell_record()

    def tell_record(self) -> None:
        """Write the ``term`` record, fenced. Does not wait for the reply."""
        reply = self._session.multi_async(
            [self.seat.fence, SetData(self._layout.term, encode(self.record))]
        )
        reply.add_done_callback(self._told)

    def read_wishes(self) -> None:
        """Read the operators' wishes, and watch for changes."""
        reply = self._session.get_async(self._layout.control, watch=self._on_control)
        reply.add_done_callback(self._wishes_read)

    def watch_line(self) -> None:
        """Read what the candidates in line run, and watch for new ones, unless an operator has
        chosen this leader.
        """
        if not self._is_chosen:
            self._look_at_line(self._on_line)

    def write(self, term: Term, ops: Sequence[Operation]) -> list[Any]:
        """Do what :meth:`leaderq.term.Term.write` promises. Called on the career's thread."""
        # An answer after the end of the lease is still useful: without it the outcome is unknown.
        # If no answer can come, the candidate drops the connection, which ends the wait.
        after_s = self._session.shares.answer_s
        while True:
            try:
                return self.seat.write(ops, timeout_s=term.remaining_s() + after_s)
            except NotConnected:
                # Nothing was sent. Wait for the connection, at most as long as the lease lasts.
                clock.sleep(min(0.02, term.remaining_s()))
                term.check()
            except SeatLost as exc:
                reason = Reason.SESSION if exc.with_session else Reason.FENCED
                raise self._deposed(reason) from exc

    def _deposed(self, reason: Reason) -> Deposed:
        self.term.wind_up(reason)
        self._say(Input.LOST if reason is Reason.SESSION else Input.FENCED)
        return Deposed(term=self.term.number, reason=self.term.reason or reason)

    def _told(self, reply: primitives.Future[Any]) -> None:
        if is_fence(reply.exception()):
            self._say(Input.GONE)

    def _proven(self, proof: Proof) -> None:
        if proof.session != self.seat.owner:
            # At once, not when the candidate's thread hears LOST: a session that is closed or
            # replaced is ended as soon as this returns, and then another candidate may lead.
            self.term.wind_up(Reason.SESSION)
            return
        if proof.shares.timeout_s < self._proof.shares.timeout_s:
            self.term.shorten(proof.trusted_until_s)
        self._proof = proof
        self.term.prolong(proof.trusted_until_s)
        if not self._own_watch_set:
            self._watch_own()
        if self._line_due_s is not None and clock.now_s() >= self._line_due_s:
            self._look_at_line()  # one may have said only later what it runs
        if self._is_doubted and clock.now_s() < proof.late_s:
            self._is_doubted = False
            self._say(Input.HEARD)

    def _watch_own(self) -> None:
        """Watch the own znode, so that its deletion is heard of at once (CURATOR-171)."""
        self._own_watch_set = True
        self.seat.watch(lambda: self._say(Input.GONE), self._own_unheard)

    def _own_unheard(self) -> None:
        self._own_watch_set = False  # with the next proof

    def _on_control(self, event: WatchEvent) -> None:
        if event.kind is not WatchKind.SESSION and not self._closed:
            self.read_wishes()

    def _wishes_read(self, reply: primitives.Future[Any]) -> None:
        if self._closed or reply.exception() is not None:
            return  # read again when connected
        wishes = self._decoder.decoded(reply.result()[0])
        if wishes is not None:  # else those known before stand
            self._hear_wishes(wishes)

    def _look_at_line(self, watch: Callable[[WatchEvent], None] | None = None) -> None:
        self._line_due_s = clock.now_s() + self._session.timeout_s
        reply = self._session.children_async(self._layout.candidates, watch=watch)
        reply.add_done_callback(self._line_listed)

    def _on_line(self, event: WatchEvent) -> None:
        if event.kind is not WatchKind.SESSION and not self._closed:
            self._look_at_line(self._on_line)

    def _line_listed(self, reply: primitives.Future[list[str]]) -> None:
        if not self._closed and reply.exception() is None:
            behind = [name for name in in_line(reply.result()) if name != self.record.id]
            self._read_on(reading(self._layout, behind))

    def _read_on(self, steps: Reading, answer: list[Any] | None = None) -> None:
        try:
            reads = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            if not self._closed:
                self._hear_line(self.term, [*end.value.values()])
            return

        def answered(reply: primitives.Future[list[Any]]) -> None:
            if reply.exception() is None:  # else it is read again when connected
                self._read_on(steps, reply.result())

        self._session.multi_read_async(reads).add_done_callback(answered)

    def _say(self, signal: Input) -> None:
        if not self._closed:
            self._tell(signal)
