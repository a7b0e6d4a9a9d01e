"""The worker's end of the link to its guardian.

The link is a socket pair; the worker inherits its end, a file descriptor whose number is in
``LEADERQ_GUARDIAN_FD``. Only the worker writes: one JSON object a line. The stream ends when the
guardian or the worker dies. The session's password crosses this link and nothing else.

Nothing here ever blocks the worker. While the link is full, messages wait to be sent; of the
reports about a term only the newest waits.

When the guardian is gone, this is told once (:class:`~leaderq.events.GuardianLost`), and the worker
hands over and leaves: no supervisor can see the worker any more, and a supervisor may start another
one in its place.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from leaderq.base import clock
from leaderq.events import EventBus, GuardianLost
from leaderq.running.guardian import GUARDIAN_FD
from leaderq.running.watchdog import LeaseReport
from leaderq.term import OpenTerm, Term
from leaderq.threads import primitives
from leaderq.zookeeper import Security, Session, SessionState

Message = dict[str, Any]
_LOOK_S = 0.5
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of who made the socket pair


class GuardianLink:
    """Tells the guardian which session to end, and until when which term is held. Thread-safe."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._link.setblocking(False)
        self._begin(_peer(link))

    def _begin(self, guardian: int) -> None:
        self.pid = guardian
        """The guardian's process id."""
        self._lock = primitives.Lock()
        self._unsent: deque[Message] = deque()
        self._newest_report: Message | None = None
        self._reported: LeaseReport | None = None  # the newest that was said, or waits for the pipe
        self._begun = b""  # the rest of a line that was sent in part
        self._session: Session | None = None
        self._told: list[Callable[[], None]] = []  # when the guardian is gone
        self._held: list[_HeldTerm] = []

    @classmethod
    def from_environment(cls) -> GuardianLink | None:
        """The link that the guardian made for this process; ``None`` if there is no guardian."""
        number = os.environ.pop(GUARDIAN_FD, None)
        if not number:
            return None
        link = socket.socket(fileno=int(number))
        # Processes that the career starts must not hold the link open after this one's death.
        link.set_inheritable(False)
        return cls(link)

    def use_servers(self, address: str, security: Security | None) -> None:
        """Tell the guardian the address of ZooKeeper, and the credentials for it."""
        known = None if security is None else asdict(security)
        self._say({"zookeeper": address, "security": known})

    def attach(
        self,
        session: Session,
        events: EventBus,
        *,
        career: str,
        candidate: str,
        lost: Callable[[], None],
    ) -> None:
        """Keep the guardian informed of ``session``; call ``lost`` when the guardian is gone.

        Several careers may be attached, all with the one session of the process.
        """

        def tell() -> None:
            events.publish(GuardianLost(career, candidate, self.pid))
            lost()

        with self._lock:
            self._told.append(tell)
            if self._session is not None:
                return
            self._session = session
        session.add_listener(self._session_changed)
        self._session_changed(session.state)

        def listen() -> None:
            self._listen()
            for told in self._told:
                told()

        primitives.Thread(target=listen, name="leaderq-guardian", daemon=True).start()

    def forget_session(self) -> None:
        """Tell the guardian that there is no session to end, because the servers have confirmed its
        end.
        """
        self._say({"session": None})

    def watch_term(self, term: OpenTerm, handover_budget_s: float) -> None:
        """Report news of ``term`` to the guardian until :meth:`forget_term`: now, at each
        :meth:`report`, and as soon as its lease is prolonged or shortened or its end begins.
        """
        assert self._session is not None  # attach comes first
        with self._lock:
            self._held.append(_HeldTerm(term, self._session, handover_budget_s))
        term.tell_changes(self.report)
        self.report()

    def report(self, *, handing_over: Term | None = None) -> None:
        """Tell the guardian the state of the terms now. ``handing_over``: the term whose last unit
        has returned.
        """
        with self._lock:
            for held in self._held:
                held.handing_over |= held.term is handing_over
            self._tell_report()

    def forget_term(self, term: Term) -> None:
        """Tell the guardian that the code of ``term`` has returned, so that there is nothing to
        stop.
        """
        with self._lock:
            self._held = [held for held in self._held if held.term is not term]
            self._tell_report()

    @property
    def is_shared(self) -> bool:
        """Whether several careers run in this process."""
        return len(self._told) > 1

    def _tell_report(self) -> None:
        """Send the report of the term whose code must be gone first (the process ends with it),
        unless the guardian was told the same.
        """
        reports = [held.report() for held in self._held]
        report = min(reports, key=lambda one: one.kill_s, default=None)
        if report != self._reported:
            self._reported = report
            self._newest_report = {"term": None} if report is None else report._asdict()
            self._send()

    def _session_changed(self, state: SessionState) -> None:
        session = self._session
        if state is not SessionState.CONNECTED or session is None or session.credentials is None:
            return
        self._say(
            {
                "session": session.credentials.session_id,
                "password": base64.b64encode(session.credentials.password).decode(),
                "timeout_s": session.timeout_s,
                # Resolved by the worker: the guardian's one loop must not wait for a name server.
                "servers": session.resolved_servers,
            }
        )

    # ---- the pipe ---------------------------------------------------------------------------

    def _say(self, message: Message) -> None:
        with self._lock:
            self._unsent.append(message)
            self._send()

    def _send(self) -> None:
        """Send as much as the link takes now. :meth:`_listen` notices if the guardian is gone."""
        while True:
            if not self._begun:
                if self._unsent:
                    self._begun = _line(self._unsent.popleft())
                elif self._newest_report is not None:
                    self._begun, self._newest_report = _line(self._newest_report), None
                else:
                    return
            try:
                self._begun = self._begun[self._link.send(self._begun) :]
            except BlockingIOError:
                return
            except OSError:
                self._begun = b""

    def _listen(self) -> None:
        """Send what the link could not take before; return when the guardian is gone.

        The guardian sends nothing; only the end of the stream matters.
        """
        poller = select.poll()
        with suppress(OSError, ValueError):  # reset or closed: the same end
            poller.register(self._link, select.POLLIN)
            while not poller.poll(_LOOK_S * 1000) or self._has_guardian():
                with self._lock:
                    self._send()

    def _has_guardian(self) -> bool:
        try:
            return bool(self._link.recv(64))
        except BlockingIOError:
            return True


class _HeldTerm:
    """What is known of a term that is held, from one report to the next."""

    def __init__(self, term: Term, session: Session, handover_budget_s: float) -> None:
        self.handing_over = False
        self.term = term
        self._session = session
        self._handover_budget_s = handover_budget_s
        self._lease_until_s = float("inf")
        self._budget_until_s: float | None = None
        self._grace_s = float("inf")

    def report(self) -> LeaseReport:
        term, reason = self.term, self.term.reason
        self._grace_s = min(self._grace_s, self._session.shares.grace_s)
        if not term.ending.is_set():
            self._lease_until_s = term.deadline
        elif reason is not None and reason.deposes:
            self._lease_until_s = min(self._lease_until_s, term.deadline, clock.now_s())
        else:
            self._lease_until_s = term.deadline  # kept up until the code has returned
            if self._budget_until_s is None:
                self._budget_until_s = clock.now_s() + self._handover_budget_s
        return LeaseReport(
            term.number,
            self._lease_until_s,
            self._grace_s,
            self._budget_until_s,
            self.handing_over,
        )


def _line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _peer(link: socket.socket) -> int:
    if not hasattr(socket, "SO_PEERCRED"):
        return os.getppid()
    pid: int = _CREDENTIALS.unpack(
        link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )[0]
    return pid
