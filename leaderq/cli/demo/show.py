"""The demo from beginning to end: put up the stage, play the acts, audit the ledger, tell the
outcome; and the live part of the screen, looked up a few times a second on a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import closing
from pathlib import Path

import click

from leaderq.cli.demo.acts import Acts
from leaderq.cli.demo.ad_billing.audit import audit, entries_of, reading
from leaderq.cli.demo.feeding import choose
from leaderq.cli.demo.report import Outcome, Screen, figures, spans, table, verdict
from leaderq.cli.demo.stage import DemoFolder, DemoStage, Interruption, put_up
from leaderq.clock import now_s
from leaderq.election.observer import View
from leaderq.errors import LeaderqError
from leaderq.testing.provision import ServerPair
from leaderq.testing.waiting import patience

_INTERVAL_S = 0.25
_RATE_OVER_S = 2.0


class Monitor:
    """Shows ``stage`` on its screen from entering the ``with`` block to leaving it."""

    def __init__(self, stage: DemoStage) -> None:
        self._stage = stage
        self._seen: deque[tuple[float, int]] = deque()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leaderq-demo-monitor", daemon=True)

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(5)
        self._stage.screen.show(())

    def _run(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            try:
                view = self._stage.observer.view()
            except LeaderqError:
                continue  # the story, which asks the same, says what is wrong
            billed, _ = self._stage.billed()
            self._stage.screen.show(
                status(view, self._stage.feeding.fed, billed, self._rate(billed), time.time())
            )

    def _rate(self, billed: int) -> float:
        now = now_s()
        self._seen.append((now, billed))
        while now - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()
        then, before = self._seen[0]
        return (billed - before) / (now - then) if now > then else 0.0


def status(view: View, fed: int, billed: int, rate: float, now: float) -> list[str]:
    """Two lines: the leadership, the work (pure)."""
    waiting = ", ".join(each for each in view.candidates if each != view.leader) or "nobody"
    if view.leader is None:
        lead = f"leader -   term {view.term}, over   waiting: {waiting}"
    else:
        since = f"{max(0.0, now - view.began):.1f} s" if view.began else "-"
        lead = (
            f"leader {view.leader}   term {view.term}, {view.stage}, for {since}   waiting:"
            f" {waiting}"
        )
    return [
        lead,
        f"fed {fed:,}   billed {billed:,}   lag {max(0, fed - billed):,}   {rate:,.0f} records/s",
    ]


_BETWEEN_ACTS_S = 4.0
_ACTS = 3
_DRAINED_WITHIN_S = 60.0


class Show:
    """One demo. ``input_file`` and ``records``: what is fed; ``keep``: leave ledger and logs behind
    whatever happens.
    """

    def __init__(
        self, input_file: Path | None, records: int, *, keep: bool, screen: Screen | None = None
    ) -> None:
        self._source = choose(input_file, records)
        self._records = records
        self._keep = keep
        self._screen = screen or Screen()
        self._interruption = Interruption()

    def run(self) -> Outcome:
        """Play it; returns what came of it. Raises ``LeaderqError`` if it could not be played to
        the end.
        """
        self._interruption.install()
        folder = None
        keep = True
        try:
            with self._interruption.held():
                folder = DemoFolder()
            outcome = self._played(folder)
            self._tell(outcome)
            keep = bool(outcome.problems)
        except KeyboardInterrupt:
            keep = False
            raise
        finally:
            self._interruption.shield()
            kept = folder.close(keep=keep or self._keep) if folder is not None else None
            if kept is not None:
                click.echo(f"ledger and logs are in {kept}", err=True)
        return outcome

    def _played(self, folder: DemoFolder) -> Outcome:
        self._screen.tell(
            f"starting ZooKeeper and Kafka; to be fed: {self._records:,} records,"
            f" {self._source.origin}"
        )
        pair = ServerPair(progress=self._screen.tell)

        def clear_up() -> None:
            self._interruption.shield()
            self._screen.tell("stopping candidates and servers")
            folder.take_in([*pair.zookeeper.log_paths, *pair.kafka.log_paths])

        putting_up = put_up(
            pair,
            folder,
            self._source,
            self._records,
            screen=self._screen,
            interruption=self._interruption,
            on_end=clear_up,
        )
        with putting_up as stage:
            acts = Acts(stage)
            with Monitor(stage):
                _play(acts)
            stage.stop_contenders()
            return _outcome(acts, self._records)

    def _tell(self, outcome: Outcome) -> None:
        self._screen.write("")
        for line in [*table(outcome), "", *figures(outcome), "", verdict(outcome)]:
            self._screen.write(line)


def _play(acts: Acts) -> None:
    stage, tell = acts.stage, acts.stage.screen.tell
    stage.until(
        lambda: len(stage.observer.view().candidates) == len(stage.contenders),
        "all candidates stand",
        timeout_s=60.0,
    )
    first = acts.await_leader()
    tell(
        f"{first.leader} leads term {first.term}; {', '.join(first.candidates[1:])} wait for their"
        " turn"
    )
    stage.feeding.start()
    acts.let_work(_BETWEEN_ACTS_S)
    acts.kill()
    acts.let_work(_BETWEEN_ACTS_S)
    acts.freeze()
    acts.let_work(_BETWEEN_ACTS_S)
    acts.transfer()
    acts.let_work(_BETWEEN_ACTS_S)
    stage.feeding.release()
    tell("no more changes; the rest is fed and billed")
    stage.until(lambda: stage.feeding.is_done, "everything is fed", timeout_s=_DRAINED_WITHIN_S)
    _drain(stage)


def _drain(stage: DemoStage) -> None:
    """Wait until all is billed; if it never is, the audit says what is missing."""
    end_s = now_s() + _DRAINED_WITHIN_S * patience()
    stage.until(
        lambda: stage.billed()[0] >= stage.feeding.fed or now_s() >= end_s,
        "everything is billed",
        timeout_s=_DRAINED_WITHIN_S + 5,
    )


def _outcome(acts: Acts, records: int) -> Outcome:
    ledger = acts.stage.ledger
    entries = list(entries_of(ledger))
    with closing(reading(ledger)) as connection:
        redelivered = connection.execute("SELECT redelivered FROM office").fetchone()[0]
    return Outcome(
        changes=acts.changes,
        billed=spans(entries),
        audit=audit(entries, records),
        redelivered=redelivered,
        wanted=_ACTS,
        broken=acts.broken,
    )
