"""Prints who leads the billing, its progress, and each change with its gap: ``python -m
ad_billing.watch``.

The gap of a change is how long *billing* stood still: from the last bill of one term to the first
of the next, by the clock of the ledger's database. So it is printed when the new leader has billed
something. If ZooKeeper or the database is unreachable, that is printed once, and tried again.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import TypeVar

from leaderq import LeaderqError, Observer, Session, connect
from leaderq.config import Settings, load
from leaderq.election.layout import Layout
from leaderq.election.observer import View
from leaderq.errors import NoNode
from leaderq.kafka.consuming.report import decode
from leaderq.term import Reason

from .shared_billing import CAREER, shared_ledger_url
from .shared_totals import Totals

T = TypeVar("T")
_EVERY_S = 5.0
_LOOK_S = 0.5
_AWAITED = 3


@dataclass
class Story:
    """What was seen of a career, told in sentences (pure)."""

    leader: str | None = None
    term: int = 0
    stood: frozenset[str] = frozenset()
    awaited: list[int] = field(default_factory=list)
    """Terms that were told of, and whose first bill was not."""

    def go_on(self, view: View) -> Iterable[str]:
        """What is new in ``view``."""
        if self.leader is not None and (view.leader is None or view.term != self.term):
            yield f"term {self.term} of {self.leader} is over{_why(view, self.term)}"
            self.leader = None
        if view.leader is not None and self.leader is None:
            yield f"{view.leader} leads term {view.term}; {_waiting(view)}"
            self.leader, self.term = view.leader, view.term
            # Not for ever: a term may end before it bills anything.
            self.awaited = [*self.awaited[1 - _AWAITED :], view.term]
        stand = frozenset(view.candidates)
        if self.stood:
            gone, come = sorted(self.stood - stand), sorted(stand - self.stood)
            yield from (f"{name} has left" for name in gone)
            yield from (f"{name} stands for election" for name in come)
        self.stood = stand


def _why(view: View, term: int) -> str:
    """Why term ``term`` ended, as far as ``view``, perhaps of the next term, can tell."""
    if view.term != term:
        return ""
    if view.ended is None or view.reason is None:
        return ": it fell silent"
    known = {reason.value: reason.sentence for reason in Reason}
    return f": {known.get(view.reason, view.reason)}"


def _waiting(view: View) -> str:
    waiting = [name for name in view.candidates if name != view.leader]
    return (
        f"{', '.join(waiting)} wait{'' if len(waiting) > 1 else 's'}" if waiting else "nobody waits"
    )


def progress(view: View, totals: tuple[int, float] | None, lag: int | None, now: float) -> str:
    """The line of how things stand (pure); ``totals``: records billed, and how many a second."""
    if view.leader is None:
        lead = f"nobody leads; the last term was {view.term}" if view.term else "nobody has led yet"
    else:
        lead = (
            f"{view.leader} leads term {view.term}, {view.stage}, for"
            f" {max(0.0, now - (view.began or now)):.0f} s"
        )
    billed = "billed -" if totals is None else f"billed {totals[0]:,}, {totals[1]:,.0f}/s"
    return f"{lead}: {billed}, lag {'-' if lag is None else f'{lag:,}'}"


class Watch:
    """Watches one career until ``stopped``; ``tell`` gets each line."""

    def __init__(
        self,
        settings: Settings,
        totals: Totals,
        stopped: threading.Event,
        tell: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._totals = totals
        self._stopped = stopped
        self._tell = tell
        self._story = Story()
        self._stirred = threading.Event()
        self._next_s = 0.0
        self._away: dict[str, str] = {}

    def run(self) -> None:
        """Watch; a session that is over is replaced."""
        try:
            while not self._stopped.is_set():
                self._watch()
        finally:
            self._totals.close()

    def _watch(self) -> None:
        try:
            with connect(
                self._settings.zookeeper, timeout_s=self._settings.session_timeout_s
            ) as session:
                self._follow(session)
        except LeaderqError as exc:
            self._is_away("ZooKeeper", exc)
            self._stopped.wait(1.0)

    def _follow(self, session: Session) -> None:
        observer = Observer(session, CAREER, root=self._settings.root)
        with ExitStack() as stack:
            stack.enter_context(observer.watching(lambda _event: self._stirred.set()))
            while not self._stopped.is_set():
                self._stirred.clear()
                view = observer.view()
                self._is_back("ZooKeeper")
                for line in self._story.go_on(view):
                    self._tell(line)
                self._tell_gaps()
                if time.monotonic() >= self._next_s:
                    self._next_s = time.monotonic() + _EVERY_S
                    self._tell(
                        progress(
                            view,
                            self._asked(self._totals.so_far),
                            self._lag(session, view),
                            time.time(),
                        )
                    )
                self._stirred.wait(_LOOK_S)

    def _tell_gaps(self) -> None:
        for term in list(self._story.awaited):
            begun = self._asked(partial(self._totals.begun, term))
            if begun is None:
                continue
            self._story.awaited.remove(term)
            if begun.stood_still_s is not None:
                self._tell(f"billing resumed in term {term}, after {begun.stood_still_s:.2f} s")

    def _asked(self, ask: Callable[[], T]) -> T | None:
        try:
            answer = ask()
        except LeaderqError as exc:
            self._is_away("the ledger", exc)
            return None
        self._is_back("the ledger")
        return answer

    def _lag(self, session: Session, view: View) -> int | None:
        """As the leader last reported it: within 5 s."""
        path = Layout(self._settings.root, CAREER).progress
        try:
            report = decode(session.get(path)[0], path=path)
        except NoNode:
            return None
        return report.lag if report.term == view.term else None

    def _is_away(self, what: str, error: LeaderqError) -> None:
        if what not in self._away:
            self._tell(f"{what} is unreachable: {error}")
        self._away[what] = str(error)

    def _is_back(self, what: str) -> None:
        if self._away.pop(what, None) is not None:
            self._tell(f"{what} is back")


def main() -> int:
    """Watch; return 0 when stopped, 2 for bad input."""
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    # As PID 1 of a container there is no default action for SIGTERM.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        settings = load({}, config=None).settings
        totals = Totals(shared_ledger_url())
    except LeaderqError as exc:
        print(f"watch: error: {exc}", file=sys.stderr)
        return 2
    Watch(
        settings,
        totals,
        stopped,
        lambda line: print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True),
    ).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
