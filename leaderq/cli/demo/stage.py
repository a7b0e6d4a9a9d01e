"""The demo's stage: its folder, what is fed and how fast, the candidates, and what can be seen of
their work. It is put up in order, and taken down in the opposite order.

On each failure, what was put up so far is taken down, and the logs are kept. Everything ends with
this process, even if it is killed: the servers and the candidates each hold the end of a pipe of
this process.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

from leaderq.base import clock
from leaderq.career import career_name
from leaderq.cli.demo.ad_billing.audit import reading
from leaderq.cli.demo.ad_billing.billing import LEDGER_VARIABLE, AdBilling
from leaderq.cli.demo.ad_billing.feed import PARTITIONS, Feed, numbered
from leaderq.cli.demo.report import Screen
from leaderq.election import Observer, Operator
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.kafka.topics import create_topics, end_offsets, produce
from leaderq.testing.java_server import WatchedProcess
from leaderq.testing.provision import ServerPair
from leaderq.testing.server import ScratchFolder, Server
from leaderq.testing.waiting import patience
from leaderq.threads.service import Service

CAREER = career_name(AdBilling)
TOPIC = str(AdBilling.topics)
SESSION_TIMEOUT_S = 4.0
FEEDING_S = 30.0  # about as long as the changes of leader take
_TARGET = "leaderq.cli.demo.ad_billing:AdBilling"
_LOOK_S = 0.03
_KEPT_BACK = 0.1
_CATCH_UP = 2.0
_TICK_S = 0.02
_ACKNOWLEDGED_WITHIN_S = 10.0


class DemoFolder:
    """A temporary folder. :meth:`close` removes it, and may first copy its contents to a folder
    that stays.
    """

    def __init__(self) -> None:
        self._scratch = ScratchFolder("demo")
        self.path = self._scratch.path

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.sqlite3"

    def take_in(self, logs: Iterable[Path]) -> None:
        for log in logs:
            if log.exists():
                shutil.copy(log, self.path / log.name)

    def close(self, *, keep: bool) -> Path | None:
        """Remove the folder. With ``keep``, copy it first unless it is empty, and return where the
        copy is.
        """
        kept = None
        if keep and any(path.name != ".owner" for path in self.path.iterdir()):
            kept = Path(tempfile.mkdtemp(prefix="leaderq-demo-"))
            without = shutil.ignore_patterns(".owner")
            shutil.copytree(self.path, kept, dirs_exist_ok=True, ignore=without)
        self._scratch.remove()
        return kept


_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupt_once() -> None:
    """Let the first signal raise ``KeyboardInterrupt``, and ignore the later ones. Main thread
    only.

    What the demo has started ends with this process in any case.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        shield()
        raise KeyboardInterrupt

    for number in _SIGNALS:
        signal.signal(number, handle)


def shield() -> None:
    """Ignore signals from now on, because what follows clears up, in a limited time."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


# Asked three times, a guardian kills its worker, even one that is stopped or stuck.
_ORPHANED: Final = "for _ in 1 2 3; do kill -TERM $$ || exit; sleep 0.5; done"


@dataclass(frozen=True)
class Said:
    """One line of a candidate's log: an event, and its time in seconds since the epoch."""

    event: str
    at: float
    fields: Mapping[str, Any]


def events_in(lines: str) -> list[Said]:
    """The events in a JSON log; other lines, and half-written ones, are left out (pure)."""
    found = []
    for text in lines.splitlines():
        try:
            line = json.loads(text)
            at = datetime.fromisoformat(line["time"].replace("Z", "+00:00"))
            found.append(Said(line["event"], at.timestamp(), line))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a traceback, a warning of Python, the last line in the making
    return found


class Contender:
    """A candidate as a process: ``leaderq run``, started as a user would; its JSON log is in a
    file.

    It does not outlive the demo: whatever ends the demo, the candidate's guardian is asked to
    leave.
    """

    def __init__(self, id: str, pair: ServerPair, folder: DemoFolder) -> None:
        self.id = id
        self.log_path = folder.path / f"{id}.log"
        self._folder = folder.path
        self._command = [sys.executable, "-m", "leaderq", "run", _TARGET, "--id", id]
        self._command += ["--zookeeper", pair.zookeeper_address, "--kafka", pair.kafka_address]
        self._command += ["--session-timeout-s", f"{SESSION_TIMEOUT_S:g}", "--log-format", "json"]
        # The user's settings are for the user's candidates.
        own = {name: value for name, value in os.environ.items() if not name.startswith("LEADERQ_")}
        self._environment = {**own, LEDGER_VARIABLE: str(folder.ledger)}
        self._process: WatchedProcess | None = None

    def start(self) -> None:
        """Start the process, or start it again after its end; the log is continued."""
        self._process = WatchedProcess(
            self._command,
            log_path=self.log_path,
            folder=self._folder,
            env=self._environment,
            orphaned=_ORPHANED,
        )

    @property
    def exit_code(self) -> int | None:
        """The exit code: ``None`` while the process runs, negative if a signal has ended it."""
        return self._process.exit_code if self._process is not None else None

    def said(self, event: str, **fields: Any) -> list[Said]:
        """The lines logged so far for ``event`` with these values."""
        found = (line for line in events_in(self._log()) if line.event == event)
        return [line for line in found if fields.items() <= line.fields.items()]

    def last_words(self) -> str:
        """The last line that the candidate logged, for an error message."""
        lines = self._log().splitlines() or ["nothing"]
        try:
            return str(json.loads(lines[-1])["message"])
        except (ValueError, KeyError, TypeError):
            return lines[-1]

    def _log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait(self, timeout_s: float) -> bool:
        return self._process is None or self._process.wait(timeout_s)

    def ask_to_leave(self) -> None:
        """Send SIGTERM to the guardian, which passes it on; the third SIGTERM kills the worker."""
        if self._process is not None:
            self._process.send(signal.SIGTERM)

    def end(self) -> None:
        for _ in range(3):
            if self.wait(0):
                break
            self.ask_to_leave()
            self.wait(1.0)
        if self._process is not None:
            self._process.end(grace_s=0)


@dataclass(frozen=True)
class Pace:
    """``records`` spread over ``planned_s`` seconds.

    A tenth of them is kept back. If the changes of leader take longer than planned, this tenth is
    fed slowly, so that there are records before and after each change. After the last change, the
    rest is fed at twice the rate.
    """

    records: int
    planned_s: float

    @property
    def rate(self) -> float:
        return self.records * (1 - _KEPT_BACK) / self.planned_s

    def due(self, elapsed_s: float, released: tuple[float, int] | None) -> int:
        """How many records should have been fed ``elapsed_s`` after the first one.

        ``released``: when the changes were over, and how many records had been fed by then.
        """
        if released is not None:
            at_s, fed = released
            return min(self.records, fed + 1 + int(_CATCH_UP * self.rate * (elapsed_s - at_s)))
        steady = self.rate * min(elapsed_s, self.planned_s)
        thin = self.rate * _KEPT_BACK * max(0.0, elapsed_s - self.planned_s)
        # The last one waits: after it nothing would show who bills.
        return max(1, min(self.records - 1, 1 + int(steady + thin)))


class Feeding:
    """Feeds ``lines`` to ``topic``, beginning at :meth:`start`.

    ``fed`` counts the lines given to the producer. An error of the producer is kept, and raised by
    :meth:`check` on the thread that calls it.
    """

    def __init__(self, address: str, topic: str, lines: Iterable[str], pace: Pace) -> None:
        self.fed = 0
        self.pace = pace
        self._address = address
        self._topic = topic
        self._records = numbered(lines)
        self._released: tuple[float, int] | None = None
        self._began_s = 0.0
        self._failure: LeaderqError | None = None
        self._service = Service("leaderq-demo-feed", self._feed)

    def start(self) -> None:
        self._began_s = clock.now_s()
        self._service.start()

    def release(self) -> None:
        """Feed the rest quickly, because no further change of leader will come."""
        self._released = (clock.now_s() - self._began_s, self.fed)

    def check(self) -> None:
        """Raise the producer's error, if it had one."""
        if self._failure is not None:
            raise self._failure

    @property
    def is_done(self) -> bool:
        """Whether everything was fed and acknowledged."""
        ended = not (self._service.is_running or self._service.is_stopping)
        return ended and self._failure is None

    def stop(self) -> None:
        """Stop feeding; return when the producer is closed, or after a limited time."""
        self._service.stop(_ACKNOWLEDGED_WITHIN_S * patience() + 5.0)

    def _feed(self, _: Service) -> None:
        try:
            timeout_s = _ACKNOWLEDGED_WITHIN_S * patience()
            produce(self._address, self._topic, self._paced(), timeout_s=timeout_s)
        except LeaderqError as exc:
            self._failure = exc

    def _paced(self) -> Iterator[Feed]:
        for record in self._records:
            while self.fed >= self.pace.due(clock.now_s() - self._began_s, self._released):
                if not self._service.wait(_TICK_S):
                    return
            yield record
            self.fed += 1


class DemoFailed(LeaderqError):
    """The demo could not continue: something did not happen in time."""


class StoodStill(DemoFailed):
    """Something did not happen in time, and nothing made progress meanwhile."""


@dataclass
class DemoStage:
    """The stage on which the demo is played: screen, ledger, feed, servers and candidates."""

    screen: Screen
    ledger: Path
    observer: Observer
    operator: Operator
    feeding: Feeding
    servers: Sequence[Server]
    contenders: dict[str, Contender] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)

    def until(
        self,
        fact: Callable[[], bool],
        what: str,
        *,
        timeout_s: float,
        progress: Callable[[], int] = lambda: 0,
    ) -> None:
        """Wait for ``fact``. The time begins again whenever ``progress`` changes, because then the
        machine is slow and nothing is broken.

        :raises DemoFailed: the fact did not come within ``timeout_s`` (times the patience), or a
            server or candidate has died.
        :raises LeaderqError: the feeder failed.
        """
        end, seen = clock.now_s() + timeout_s * patience(), progress()
        while not fact():
            self.feeding.check()
            self._check_processes()
            if (now := progress()) != seen:
                end, seen = clock.now_s() + timeout_s * patience(), now
            if clock.now_s() >= end:
                last = "; ".join(
                    f"{one.id}: {one.last_words()}" for one in self.contenders.values()
                )
                waited = f"waited {timeout_s * patience():.0f} s in vain until {what}"
                raise StoodStill(f"{waited}; last log lines: {last}")
            time.sleep(_LOOK_S)

    def billed(self) -> tuple[int, int]:
        """How many records are billed, and the term of the newest bill. The call is cheap."""
        try:
            with closing(reading(self.ledger)) as connection:
                # Rows are only ever added, so the highest row number is their count.
                newest = connection.execute(
                    "SELECT rowid, term FROM billed ORDER BY rowid DESC LIMIT 1"
                ).fetchone()
        except sqlite3.Error:
            return 0, 0  # not made yet
        return newest or (0, 0)

    def stop_contenders(self) -> None:
        """Ask all candidates to leave, and return when they have ended."""
        self.leaving.update(self.contenders)
        for contender in self.contenders.values():
            contender.ask_to_leave()
        for contender in self.contenders.values():
            contender.wait(8.0 * patience())
            contender.end()

    def _check_processes(self) -> None:
        for server in self.servers:
            if not server.alive:
                raise DemoFailed(f"{server.what} at {server.address} is gone; its log is kept")
        for contender in self.contenders.values():
            code = contender.exit_code
            if code is not None and contender.id not in self.leaving:
                end = f"candidate {contender.id} ended by itself with code {code}"
                raise DemoFailed(f"{end}: {contender.last_words()}")


def refuse_used_servers(pair: ServerPair, observer: Observer) -> None:
    """Create the topic; raise ``ConfigurationError`` if servers that were given by address already
    have candidates of the career or records of the topic.
    """
    if standing := observer.view().candidates:
        raise ConfigurationError(
            f"candidates of {CAREER!r} stand already at ZooKeeper {pair.zookeeper_address!r}:"
            f" {', '.join(standing)}; stop them, or unset LEADERQ_ZOOKEEPER so that the demo starts"
            " servers of its own"
        )
    create_topics(pair.kafka_address, {TOPIC: PARTITIONS})
    if held := sum(end_offsets(pair.kafka_address, TOPIC).values()):
        raise ConfigurationError(
            f"topic {TOPIC!r} on Kafka {pair.kafka_address!r} holds {held} records already; delete"
            " it, or unset LEADERQ_KAFKA so that the demo starts servers of its own"
        )
