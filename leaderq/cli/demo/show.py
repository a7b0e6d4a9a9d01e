"""Plays the demo from beginning to end: puts up the stage, plays the acts (kill, freeze, transfer),
audits the ledger, and tells the outcome. A thread of its own shows the live part of the screen.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from leaderq import connect
from leaderq.base import clock
from leaderq.cli.demo.ad_billing.audit import audit, entries_of, reading
from leaderq.cli.demo.ad_billing.traffic import generated
from leaderq.cli.demo.report import Change, Outcome, Screen, figures, spans, verdict, write_changes
from leaderq.cli.demo.stage import (
    CAREER,
    FEEDING_S,
    SESSION_TIMEOUT_S,
    TOPIC,
    Contender,
    DemoFailed,
    DemoFolder,
    DemoStage,
    Feeding,
    Pace,
    StoodStill,
    interrupt_once,
    refuse_used_servers,
    shield,
)
from leaderq.cli.output import say
from leaderq.election import Observer, Operator
from leaderq.election.observer import View
from leaderq.errors import LeaderqError
from leaderq.events import Stage
from leaderq.term import Reason
from leaderq.testing.freezing import freeze
from leaderq.testing.jars import class_path
from leaderq.testing.provision import ServerPair, runs_from_jars
from leaderq.threads.service import Service

_INTERVAL_S = 0.25
_RATE_OVER_S = 2.0
_BETWEEN_ACTS_S = 4.0
_ACTS = 3
_LED_WITHIN_S = 30.0
_STILL_S = 60.0  # fed or billed nothing for so long: it is not the machine that is slow
_FREEZE_TRIES = 40
_DEPOSING = {reason.value for reason in Reason if reason.deposes}


@dataclass
class Acts:
    """The acts of the demo and their results: the ``changes`` of leader, and the ``broken``
    promises.
    """

    stage: DemoStage
    changes: list[Change] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def await_leader(self, after: int = 0) -> View:
        """Wait until a term with a number above ``after`` is in its execution; return the view of
        it.
        """
        seen: list[View] = []

        def executes() -> bool:
            seen.append(view := self.stage.observer.view())
            is_led = view.term > after and view.leader is not None
            return is_led and view.stage == Stage.EXECUTION.value

        self._until(executes, f"a leader after term {after} is at work")
        return seen[-1]

    def _until(self, fact: Callable[[], bool], what: str) -> None:
        self.stage.until(fact, what, timeout_s=_LED_WITHIN_S)

    def let_work(self, seconds: float) -> View:
        """Wait until the present leader has billed something, and then ``seconds`` more; return the
        view.
        """
        view = self.await_leader()
        what = f"{view.leader} bills in term {view.term}"
        self._until(lambda: self.stage.billed()[1] >= view.term, what)
        end = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= end, "the clock goes on")
        return self.await_leader()

    def kill(self) -> None:
        """Kill the leader's worker (kill -9), and start its candidate again."""
        view, contender, pid = self._leader()
        self.stage.leaving.add(contender.id)
        self._change("kill -9", view, lambda: os.kill(pid, signal.SIGKILL))
        if not contender.wait(15.0):
            broken = f"the guardian of {contender.id} did not end after its worker was killed"
            self.broken.append(broken)
        contender.end()
        contender.start()
        self.stage.leaving.discard(contender.id)
        self._await_standing(contender.id)
        self.stage.screen.tell(f"{contender.id} was started again and waits for its turn")

    def freeze(self) -> None:
        """Stop the leader's worker (SIGSTOP) until its session is over and another candidate leads;
        then let it continue (SIGCONT).
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
        """Transfer leadership to the last candidate in the line, as ``leaderq transfer --to``
        does.
        """
        view, _, _ = self._leader()
        to = view.candidates[-1]
        wish_for = self.stage.operator.wish_for
        self._change(f"transfer to {to}", view, lambda: wish_for(successor=to, term=view.term))
        if (new := self.changes[-1].new) != to:
            self.broken.append(f"leadership was transferred to {to}, but {new} leads")

    def _leader(self) -> tuple[View, Contender, int]:
        view = self.await_leader()
        if view.leader not in self.stage.contenders or view.pid is None:
            raise DemoFailed(f"{view.leader!r} leads, which is not one of the demo's candidates")
        return view, self.stage.contenders[view.leader], view.pid

    def _change(self, kind: str, before: View, deed: Callable[[], float | None]) -> None:
        old = str(before.leader)
        self.stage.screen.tell(f"{kind}: {old}, leader of term {before.term}, worker {before.pid}")
        now = time.time()
        done_at = deed() or now
        view = self.await_leader(before.term)
        new = str(view.leader)
        stage = Stage.INAUGURATION.value
        began = self.stage.contenders[new].said("stage_began", term=view.term, stage=stage)
        change = Change(kind, old, new, view.term, done_at, began[-1].at if began else None)
        self.changes.append(change)
        ms = change.takeover_ms
        took = "" if ms is None else f", inaugurated after {ms:,.0f} ms"
        self.stage.screen.tell(f"{new} leads term {view.term}{took}")

    def _stop(self, pid: int) -> float:
        """Stop the worker at a moment when it does not hold the ledger's lock; return the time of
        that, in seconds since the epoch.

        A stopped process would keep the lock of the file, and nobody could bill: that is a limit of
        SQLite, not of the election. A database server would end such a transaction.
        """
        for _ in range(_FREEZE_TRIES):
            at = time.time()
            freeze(pid)
            if self._ledger_is_free():
                return at
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.05)
        raise DemoFailed(f"worker {pid} always held the ledger's lock when it was stopped")

    def _ledger_is_free(self) -> bool:
        opened = sqlite3.connect(self.stage.ledger, timeout=0.1, isolation_level=None)
        with closing(opened) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return False
        return True

    def _watch_awakening(self, contender: Contender, term: int, thawed_at: float) -> None:
        """Check that the thawed leader notices, hands over because it was deposed, and stands
        again.
        """
        tell = self.stage.screen.tell
        tell(f"thaw: {contender.id}, {SESSION_TIMEOUT_S:g} s session long over")
        # The stage's own thread may log that it hands over before the election's logs why: wait for
        # the last line.
        ended = f"the thawed {contender.id} ends its term"
        self._until(lambda: bool(contender.said("term_ended", term=term)), ended)
        reason = str(contender.said("term_ended", term=term)[-1].fields.get("reason"))
        if not contender.said("stage_began", term=term, stage=Stage.HANDOVER.value):
            self.broken.append(f"{contender.id} woke and ended term {term} without a hand-over")
        if reason not in _DEPOSING:
            why = f"for the reason {reason!r}, not as deposed"
            self.broken.append(f"{contender.id} woke and ended term {term} {why}")
        self._until(
            lambda: any(said.at >= thawed_at for said in contender.said("standing")),
            f"the thawed {contender.id} stands again",
        )
        self._await_standing(contender.id)
        noticed = f"{contender.id} noticed that it was deposed (reason: {reason})"
        tell(f"{noticed}, handed over and stands again")

    def _await_standing(self, candidate: str) -> None:
        observer = self.stage.observer
        self._until(lambda: candidate in observer.view().candidates, f"{candidate} stands")


class Monitor:
    """Shows the state of ``stage`` on its screen, during a ``with`` block."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage
        self._seen: deque[tuple[float, int]] = deque()
        self._service = Service.repeating("leaderq-demo-monitor", self._look)

    def __enter__(self) -> Monitor:
        self._service.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._service.stop(5)
        self._stage.screen.show(())

    def _look(self) -> float:
        try:
            view = self._stage.observer.view()
        except LeaderqError:
            return _INTERVAL_S  # the story asks the same, and reports the error
        billed, _ = self._stage.billed()
        fed = self._stage.feeding.fed
        self._stage.screen.show(status(view, fed, billed, self._rate(billed), time.time()))
        return _INTERVAL_S

    def _rate(self, billed: int) -> float:
        now = clock.now_s()
        self._seen.append((now, billed))
        while now - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()
        then, before = self._seen[0]
        return (billed - before) / (now - then) if now > then else 0.0


def status(view: View, fed: int, billed: int, rate: float, now: float) -> list[str]:
    """Two lines, about the leadership and about the work (pure)."""
    waiting = ", ".join(each for each in view.candidates if each != view.leader) or "nobody"
    since = f"{max(0.0, now - view.began):.1f} s" if view.began else "-"
    stage = "over" if view.leader is None else f"{view.stage}, for {since}"
    lag = max(0, fed - billed)
    return [
        f"leader {view.leader or '-'}   term {view.term}, {stage}   waiting: {waiting}",
        f"fed {fed:,}   billed {billed:,}   lag {lag:,}   {rate:,.0f} records/s",
    ]


class Show:
    """One demo. It feeds ``records`` lines of an access log. ``keep``: keep the ledger and the
    logs.
    """

    def __init__(self, records: int, *, keep: bool) -> None:
        self._records = records
        self._keep = keep
        self._screen = Screen()

    def run(self) -> Outcome:
        """Play the demo, and return its outcome.

        :raises LeaderqError: the demo could not be played to the end.
        """
        interrupt_once()
        folder = None
        keep = True
        try:
            folder = DemoFolder()
            outcome = self._played(folder)
            self._screen.write("")
            write_changes(outcome)
            self._screen.write("\n".join(["", *figures(outcome), "", verdict(outcome)]))
            keep = bool(outcome.problems)
        except KeyboardInterrupt:
            keep = False
            raise
        finally:
            shield()
            kept = folder.close(keep=keep or self._keep) if folder is not None else None
            if kept is not None:
                say(f"ledger and logs are in {kept}")
        return outcome

    def _played(self, folder: DemoFolder) -> Outcome:
        fed = f"{self._records:,} records, lines made up with the skew of a real access log"
        self._screen.tell(f"starting ZooKeeper and Kafka; to be fed: {fed}")
        pair = ServerPair(progress=self._screen.tell)
        # Before the servers are started, because it may take long the first time, and can be
        # interrupted at any moment.
        for what in ("ZooKeeper", "Kafka"):
            if runs_from_jars(what):
                class_path(what.lower(), progress=self._screen.tell)
        with ExitStack() as stack:
            acts = Acts(self._put_up(pair, folder, stack))
            with Monitor(acts.stage):
                _play(acts)
            acts.stage.stop_contenders()
            return _outcome(acts, self._records)

    def _put_up(self, pair: ServerPair, folder: DemoFolder, stack: ExitStack) -> DemoStage:
        """Put up the stage, and start three candidates; ``stack`` takes all of it down."""
        servers = [pair.zookeeper, pair.kafka]
        for server in servers:
            stack.enter_context(server)
            self._screen.tell(f"{server.what} is up at {server.address}")
        session = stack.enter_context(connect(pair.zookeeper_address, timeout_s=10.0))
        observer, operator = Observer(session, CAREER), Operator(session, CAREER)
        refuse_used_servers(pair, observer)
        pace = Pace(self._records, FEEDING_S)
        feeding = Feeding(pair.kafka_address, TOPIC, generated(self._records), pace)
        stack.callback(feeding.stop)
        stage = DemoStage(self._screen, folder.ledger, observer, operator, feeding, servers)
        stack.callback(stage.stop_contenders)

        def clear_up() -> None:
            shield()
            self._screen.tell("stopping candidates and servers")
            folder.take_in([*pair.zookeeper.log_paths, *pair.kafka.log_paths])

        stack.callback(clear_up)
        for name in ("a", "b", "c"):
            stage.contenders[name] = Contender(name, pair, folder)
            stage.contenders[name].start()
        return stage


def _play(acts: Acts) -> None:
    stage, tell = acts.stage, acts.stage.screen.tell
    stage.until(
        lambda: len(stage.observer.view().candidates) == len(stage.contenders),
        "all candidates stand",
        timeout_s=60.0,
    )
    first = acts.await_leader()
    waiting = ", ".join(first.candidates[1:])
    tell(f"{first.leader} leads term {first.term}; {waiting} wait for their turn")
    stage.feeding.start()
    for act in (acts.kill, acts.freeze, acts.transfer):
        acts.let_work(_BETWEEN_ACTS_S)
        act()
    acts.let_work(_BETWEEN_ACTS_S)
    stage.feeding.release()
    tell("no more changes; the rest is fed and billed")
    stage.until(
        lambda: stage.feeding.is_done,
        "everything is fed",
        timeout_s=_STILL_S,
        progress=lambda: stage.feeding.fed,
    )
    try:
        stage.until(
            lambda: stage.billed()[0] >= stage.feeding.fed,
            "everything is billed",
            timeout_s=_STILL_S,
            progress=lambda: stage.billed()[0],
        )
    except StoodStill:
        pass  # the audit says what is missing


def _outcome(acts: Acts, records: int) -> Outcome:
    ledger = acts.stage.ledger
    entries = list(entries_of(ledger))
    with closing(reading(ledger)) as connection:
        redelivered = connection.execute("SELECT redelivered FROM deliveries").fetchone()[0]
    return Outcome(
        changes=acts.changes,
        billed=spans(entries),
        audit=audit(entries, records),
        redelivered=redelivered,
        wanted=_ACTS,
        broken=acts.broken,
    )
