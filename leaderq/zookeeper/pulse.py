"""Proves that a session lives, for everything that relies on it; ``proof.py`` says what is proven,
and why.

Each session has one pulse. A proof takes two round trips: a ``sync``, then a write that changes
nothing. One proof is under way at a time. While somebody holds the pulse, there is a proof every
T/7 and at each new connection; else only when somebody asks for one.

What happens on each failure: without a connection or an answer no proof comes, and the trusted time
runs out. When the session is over, its proofs do not count any more, and whoever holds the pulse is
told; if the session is closed or replaced, before the servers are told. When a shorter time-out is
granted, the trusted time is shortened before anybody hears of the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from leaderq.base import clock
from leaderq.errors import LeaderqError, NoNode, NoPermission
from leaderq.threads import Service, primitives
from leaderq.zookeeper.proof import Echoes, Proof, Shares
from leaderq.zookeeper.wire import Check, Operation

log = logging.getLogger(__name__)
OnProof = Callable[[Proof], object]
_NO_CHANGE = (Check("/"),)
_ROOT = "/"


class ProvenSession(Protocol):
    """What a pulse asks of its session."""

    @property
    def id(self) -> int | None: ...
    @property
    def shares(self) -> Shares: ...
    @property
    def echoes(self) -> Echoes: ...
    def sync_async(self, path: str = "/") -> primitives.Future[None]: ...
    def multi_async(self, operations: Sequence[Operation]) -> primitives.Future[list[Any]]: ...


class Pulse:
    """Makes and keeps the proofs of one session. Any thread may use it; only :meth:`ensure` waits.

    ``let_go()`` is called when a holder has released it.
    """

    def __init__(self, name: str, session: ProvenSession, *, let_go: Callable[[], object]) -> None:
        self._session = session
        self._let_go = let_go
        # Held while proofs are told, so that all hear them in one order.
        self._lock = primitives.RLock()
        self._proof = Proof(None, session.shares)
        self._open: primitives.Future[Proof] | None = None
        self._holders: dict[object, OnProof] = {}
        self._service = Service.repeating(f"leaderq-{name}-pulse", self._step)
        self._due_s = 0.0

    @property
    def proof(self) -> Proof:
        """The newest proof of the present session. It may have run out, or prove nothing yet."""
        proof, session = self._proof, self._session.id
        return proof if proof.session == session else Proof(session, self._session.shares)

    def holds(self, session: int | None) -> bool:
        """Whether the newest proof says that this session certainly lives now. Sends no request."""
        proof = self._proof
        is_mine = session is not None and session == proof.session == self._session.id
        return is_mine and clock.now_s() < proof.trusted_until_s

    def ensure(self, session: int | None, within_s: float) -> bool:
        """Whether this session certainly lives now. If the newest proof grows old, ask for another
        one; if it has run out, wait for the new proof, at most ``within_s`` seconds.
        """
        proof = self._proof
        if proof.session != session or clock.now_s() >= proof.late_s:
            proving = self.prove()
            if not self.holds(session):
                with suppress(primitives.FutureTimeout):
                    proving.exception(within_s)
        return self.holds(session)

    def hold(self, on_proof: OnProof) -> Callable[[], None]:
        """Prove the session again and again until the returned function is called.

        ``on_proof`` is called with the newest proof now, with each newer one, and again with a
        proof whose time-out has become shorter. When the session is over, or is about to be ended,
        it is called with a proof of another session, or of none. It must not block, because it runs
        on a thread of the session.
        """
        mark = object()
        with self._lock:
            self._holders = {**self._holders, mark: on_proof}
            on_proof(self.proof)
            self._due_s = clock.now_s() + self._session.shares.beat_s
        self.prove()
        self._service.start()
        self._service.wake()

        def release() -> None:
            with self._lock:
                self._holders = {one: call for one, call in self._holders.items() if one != mark}
            self._let_go()

        return release

    @property
    def is_held(self) -> bool:
        """Whether somebody relies on the session."""
        return bool(self._holders)

    def prove(self) -> primitives.Future[Proof]:
        """Begin a proof, or join the one under way. The future fails with the error of the
        request.
        """
        with self._lock:
            if self._open is not None and not self._open.done():
                return self._open
            future: primitives.Future[Proof] = primitives.Future()
            self._open = future
        shares = self._session.shares
        known_s = self._session.echoes.newest_s(clock.now_s() - shares.known_s)
        wanted = Proof(self._session.id, shares, known_s)
        answer = self._session.sync_async(_ROOT)
        answer.add_done_callback(partial(self._synced, wanted, future))
        return future

    def look(self) -> None:
        """Take note of a new connection, or that the session is over; the thread that learned of it
        calls this before it does anything else. Whoever holds the pulse is told.
        """
        session = self._session.id
        with self._lock:
            known, shares = self._proof, self._session.shares
            is_mine = known.session == session
            self._proof = known.granted(shares) if is_mine else Proof(session, shares)
            if self._proof is not known:
                self._tell()
        if self._holders and session is not None:
            self._due_s = 0.0
            self._service.wake()

    def stop(self) -> None:
        """Make no more proofs. Does not wait for the thread."""
        self._service.stop(0)

    def _step(self) -> float | None:
        if not self._holders:
            return None
        now_s = clock.now_s()
        if now_s >= self._due_s:
            if self._open is not None and not self._open.done():
                return None  # its end wakes us: after a silence the next one follows at once
            self._due_s = now_s + self._session.shares.beat_s
            self.prove()
        return max(0.0, self._due_s - clock.now_s())

    def _synced(
        self, wanted: Proof, future: primitives.Future[Proof], answer: primitives.Future[None]
    ) -> None:
        if (error := answer.exception()) is not None:
            self._fail(future, error)
            return
        written = self._session.multi_async(_NO_CHANGE)
        written.add_done_callback(partial(self._written, wanted, future))

    def _written(
        self, wanted: Proof, future: primitives.Future[Proof], answer: primitives.Future[list[Any]]
    ) -> None:
        error = answer.exception()
        # A refusal is agreed on by a quorum like any other outcome.
        if error is not None and not isinstance(error, (NoNode, NoPermission)):
            self._fail(future, error)
            return
        with self._lock:
            is_first = self._proof.session != wanted.session
            is_newer = is_first or wanted.known_s > self._proof.known_s
            if is_newer and wanted.session == self._session.id:
                self._proof = wanted.granted(self._session.shares)
                self._tell()
        future.set_result(wanted)
        self._go_on()

    def _tell(self) -> None:
        for on_proof in self._holders.values():
            try:
                on_proof(self._proof)
            except Exception:
                log.exception("listener of a proof failed session=%s", self._proof.session)

    def _fail(self, future: primitives.Future[Proof], error: BaseException) -> None:
        is_ours = isinstance(error, LeaderqError)
        future.set_exception(error if is_ours else LeaderqError(repr(error)))
        self._go_on()

    def _go_on(self) -> None:
        """Wake the thread if the next proof is due: then it has waited for the end of this one."""
        if clock.now_s() >= self._due_s:
            self._service.wake()
