"""What the demo does to its leaders: kill, freeze and thaw, transfer. Each act returns when the
next leader is at work.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from leaderq.cli.demo.report import Change
from leaderq.cli.demo.stage import SESSION_TIMEOUT_S, Contender, DemoFailed, DemoStage
from leaderq.election.observer import View
from leaderq.events import Stage
from leaderq.term import Reason
from leaderq.testing.freezing import freeze

_LED_WITHIN_S = 30.0
_FREEZE_TRIES = 40
_DEPOSING = {reason.value for reason in Reason if reason.deposes}


@dataclass
class Acts:
    """The acts, and what came of them: ``changes`` made, and promises seen ``broken``."""

    stage: DemoStage
    changes: list[Change] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def await_leader(self, after: int = 0) -> View:
        """The first view in which a term after number ``after`` executes."""
        seen: list[View] = []

        def executes() -> bool:
            view = self.stage.observer.view()
            seen.append(view)
            return (
                view.term > after
                and view.leader is not None
                and view.stage == Stage.EXECUTION.value
            )

        self.stage.until(
            executes, f"a leader after term {after} is at work", timeout_s=_LED_WITHIN_S
        )
        return seen[-1]

    def let_work(self, seconds: float) -> View:
        """Wait until the present leader has billed something, and for so long after."""
        view = self.await_leader()
        self.stage.until(
            lambda: self.stage.billed()[1] >= view.term,
            f"{view.leader} bills in term {view.term}",
            timeout_s=_LED_WITHIN_S,
        )
        end = time.monotonic() + seconds
        self.stage.until(
            lambda: time.monotonic() >= end, "the clock goes on", timeout_s=seconds + 5
        )
        return self.await_leader()

    def kill(self) -> None:
        """Send kill -9 to the leader's worker; its candidate is started again."""
        view, contender, pid = self._leader()
        self.stage.leaving.add(contender.id)
        self._change("kill -9", view, lambda: os.kill(pid, signal.SIGKILL))
        if not contender.wait(15.0):
            self.broken.append(
                f"the guardian of {contender.id} did not end after its worker was killed"
            )
        contender.end()
        contender.start()
        self.stage.leaving.discard(contender.id)
        self._await_standing(contender.id)
        self.stage.screen.tell(f"{contender.id} was started again and waits for its turn")

    def freeze(self) -> None:
        """SIGSTOP of the leader's worker until its session is over and another leads; then
        SIGCONT.
        """
        view, contender, pid = self._leader()
        try:
            self._change("freeze", view, lambda: self._stop(pid))
            # Well past the session time-out, with the new leader long at work.
            self.let_work(1.0)
        finally:
            os.kill(pid, signal.SIGCONT)
        self._watch_awakening(contender, view.term, time.time())

    def transfer(self) -> None:
        """A planned change, as ``leaderq transfer --to`` makes it: to the last in line, whose turn
        it is not.
        """
        view, _, _ = self._leader()
        to = view.candidates[-1]
        self._change(
            f"transfer to {to}",
            view,
            lambda: self.stage.operator.wish_for(successor=to, term=view.term),
        )
        if self.changes[-1].new != to:
            self.broken.append(
                f"leadership was transferred to {to}, but {self.changes[-1].new} leads"
            )

    def _leader(self) -> tuple[View, Contender, int]:
        view = self.await_leader()
        if view.leader not in self.stage.contenders or view.pid is None:
            raise DemoFailed(f"{view.leader!r} leads, which is none of the demo's candidates")
        return view, self.stage.contenders[view.leader], view.pid

    def _change(self, kind: str, before: View, deed: Callable[[], float | None]) -> None:
        old = str(before.leader)
        self.stage.screen.tell(f"{kind}: {old}, leader of term {before.term}, worker {before.pid}")
        now = time.time()
        done_at = deed() or now
        view = self.await_leader(before.term)
        new = str(view.leader)
        began = self.stage.contenders[new].said(
            "stage_began", term=view.term, stage=Stage.INAUGURATION.value
        )
        change = Change(kind, old, new, view.term, done_at, began[-1].at if began else None)
        self.changes.append(change)
        took = (
            ""
            if change.takeover_ms is None
            else f", inaugurated after {change.takeover_ms:,.0f} ms"
        )
        self.stage.screen.tell(f"{new} leads term {view.term}{took}")

    def _stop(self, pid: int) -> float:
        """Stop the worker at a moment when it does not hold the ledger's lock; returns when.

        The lock of a file stays with a stopped process, and nobody could bill: a limit of SQLite,
        not of the election. A database server would break such a transaction off.
        """
        for _ in range(_FREEZE_TRIES):
            at = time.time()
            freeze(pid)
            if self._ledger_is_free():
                return at
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)
        raise DemoFailed(
            f"worker {pid} held the ledger's lock each of {_FREEZE_TRIES} times that it was stopped"
        )

    def _ledger_is_free(self) -> bool:
        with closing(
            sqlite3.connect(self.stage.ledger, timeout=0.1, isolation_level=None)
        ) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
        return True

    def _watch_awakening(self, contender: Contender, term: int, thawed_at: float) -> None:
        """The thawed leader must notice, hand over knowing why, and stand again."""
        tell = self.stage.screen.tell
        tell(f"thaw: {contender.id}, {SESSION_TIMEOUT_S:g} s session long over")
        # The stage's own thread may say that it hands over before the election's says why: wait for
        # the last word.
        self.stage.until(
            lambda: bool(contender.said("term_ended", term=term)),
            f"the thawed {contender.id} ends its term",
            timeout_s=_LED_WITHIN_S,
        )
        reason = str(contender.said("term_ended", term=term)[-1].fields.get("reason"))
        if not contender.said("stage_began", term=term, stage=Stage.HANDOVER.value):
            self.broken.append(f"{contender.id} woke and ended term {term} without a hand-over")
        if reason not in _DEPOSING:
            self.broken.append(
                f"{contender.id} woke and ended term {term} for the reason {reason!r}, not as"
                " deposed"
            )
        self.stage.until(
            lambda: any(said.at >= thawed_at for said in contender.said("standing")),
            f"the thawed {contender.id} stands again",
            timeout_s=_LED_WITHIN_S,
        )
        self._await_standing(contender.id)
        tell(
            f"{contender.id} noticed that it was deposed (reason: {reason}), handed over and stands"
            " again"
        )

    def _await_standing(self, candidate: str) -> None:
        self.stage.until(
            lambda: candidate in self.stage.observer.view().candidates,
            f"{candidate} stands",
            timeout_s=_LED_WITHIN_S,
        )
