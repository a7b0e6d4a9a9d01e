"""The worker's end of the link to its guardian.

One socket pair, inherited as a file descriptor whose number is in ``LEADERQ_GUARDIAN_FD``; one JSON object a line, from the worker
to the guardian only. The guardian's death is the end of that stream, and so is the worker's. The session's password crosses this
link and nothing else: no command line, no environment, no log, no disk.

On each failure: the guardian is gone: it is said once (:class:`~leaderq.events.GuardianLost`), and the work goes on; a crash then
costs the session time-out. The link's own thread starves with all other Python threads: that is what the guardian watches for.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Mapping
from typing import Any

from leaderq.clock import now_s
from leaderq.events import EventBus, GuardianLost
from leaderq.term import Term
from leaderq.zookeeper import Session, SessionState

GUARDIAN_FD = "LEADERQ_GUARDIAN_FD"


class GuardianLink:
    """Tells the guardian which session to end, and which term is held until when. Thread-safe."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._lock = threading.RLock()
        self._session: Session | None = None
        self._released = threading.Event()
        self._lost = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> GuardianLink | None:
        """The link that the guardian made for this process; ``None`` when there is no guardian."""
        number = (os.environ if environment is None else environment).get(GUARDIAN_FD)
        if not number:
            return None
        os.environ.pop(GUARDIAN_FD, None)
        link = socket.socket(fileno=int(number))
        # Processes that the career starts must not hold the link open after this one's death.
        link.set_inheritable(False)
        return cls(link)

    def attach(self, session: Session, events: EventBus, *, career: str, candidate: str) -> None:
        """Keep the guardian informed of ``session``, and say on ``events`` when it is gone."""
        self._session = session
        session.add_listener(self._session_changed)
        self._session_changed(session.state)
        threading.Thread(target=self._listen, args=(events, career, candidate), name="leaderq-guardian", daemon=True).start()

    def watch_term(self, term: Term, handover_budget_s: float) -> None:
        """LeaseReport ``term`` until :meth:`forget_term`."""
        assert self._session is not None  # attach comes first
        # The end of the lease leaves T/3 before another leader can start; two graces and a margin fit into it.
        grace_s = self._session.timeout_s / 12
        self._released = threading.Event()
        reporting = threading.Thread(
            target=self._report,
            args=(term, handover_budget_s, grace_s, self._released),
            name="leaderq-lease-report",
            daemon=True,
        )
        reporting.start()

    def forget_term(self) -> None:
        """The code of the term has returned: there is nothing to stop any more."""
        with self._lock:  # no report of this term may follow
            self._released.set()
            self._send({"term": None})

    def _report(self, term: Term, handover_budget_s: float, grace_s: float, released: threading.Event) -> None:
        def report(until_s: float, grace_s: float) -> None:
            with self._lock:
                if not released.is_set():
                    self._send({"term": term.number, "until_s": until_s, "grace_s": grace_s, "ending": term.ending.is_set()})

        while not term.ending.is_set():
            report(term.deadline, grace_s)
            term.ending.wait(2 * grace_s)
        # The runner leaves by itself when the budget is over; the guardian is there for the case that it cannot.
        report(now_s() + handover_budget_s, max(grace_s, 0.5))

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CLOSED:  # by the worker itself, on whatever way it ends: nothing is left to be done for it
            self._send({"session": None})
        elif state is SessionState.CONNECTED and self._session is not None and self._session.credentials is not None:
            credentials = self._session.credentials
            password = base64.b64encode(credentials.password).decode()
            self._send({"session": credentials.session_id, "password": password, "timeout_s": self._session.timeout_s})

    def _send(self, message: dict[str, Any]) -> None:
        with self._lock:
            if self._lost:
                return
            try:
                self._link.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                self._lost = True  # said by the listening thread

    def _listen(self, events: EventBus, career: str, candidate: str) -> None:
        try:
            while self._link.recv(64):
                pass  # the guardian says nothing; only its end is of interest
        except OSError:
            pass  # reset: the same end
        self._lost = True
        events.publish(GuardianLost(career, candidate, os.getppid()))
