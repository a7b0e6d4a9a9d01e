"""The demo's stage: servers, topic, candidates and feeder; put up in order, and taken down in the
opposite one.

On each failure: what was put up so far is taken down, and the logs are kept. Everything that runs
ends with this process even if it is killed: the servers and the candidates each hold the end of a
pipe of ours.
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
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, Final

from leaderq import connect
from leaderq.career import career_name
from leaderq.cli.demo.ad_billing.audit import reading
from leaderq.cli.demo.ad_billing.billing import LEDGER_VARIABLE, AdBilling
from leaderq.cli.demo.ad_billing.feed import PARTITIONS
from leaderq.cli.demo.feeding import Feeding, InputLines, Pace
from leaderq.cli.demo.report import Screen
from leaderq.clock import now_s
from leaderq.election import Observer, Operator
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.kafka.topics import create_topics, end_offsets
from leaderq.testing.jars import class_path
from leaderq.testing.java_server import ScratchFolder, WatchedProcess
from leaderq.testing.provision import ServerPair, runs_from_jars
from leaderq.testing.server import Server
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoFolder:
    """A temporary folder; :meth:`close` removes it, or moves it to where no sweeper of abandoned
    folders will find it.
    """

    def __init__(self) -> None:
        self._scratch = ScratchFolder("demo")
        self.path = self._scratch.path

    @property
    def ledger(self) -> Path:
        """The SQLite ledger."""
        return self.path / "ledger.sqlite3"

    def take_in(self, logs: Iterable[Path]) -> None:
        """Copy ``logs`` into the folder."""
        for log in logs:
            if log.exists():
                shutil.copy(log, self.path / log.name)

    def close(self, *, keep: bool) -> Path | None:
        """Remove the folder; or keep it, if anything is in it, and return where it is now."""
        kept = None
        if keep and any(path.name != ".owner" for path in self.path.iterdir()):
            kept = Path(tempfile.mkdtemp(prefix="leaderq-demo-"))
            shutil.copytree(
                self.path, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".owner")
            )
        self._scratch.remove()
        return kept


class Interruption:
    """Turns the first signal into a ``KeyboardInterrupt``; further ones, and all after
    :meth:`shield`, are ignored.

    Ignoring is safe, because what follows is bounded in time, and everything started ends with this
    process in any case.
    """

    def __init__(self) -> None:
        self._shielded = False
        self._holding = False
        self._pending = False

    def install(self) -> None:
        """Take the signals. Main thread only."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def shield(self) -> None:
        """From now on everything is being cleared up."""
        self._shielded = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block an interruption waits for its end: what is being started there must
        become known first.

        Otherwise it could strike between the making of a process or a folder and the note that it
        was made.
        """
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending:
            self._interrupt()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._holding:
            self._pending = True
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        if not self._shielded:
            self._shielded = True
            raise KeyboardInterrupt


# Asked three times, a guardian kills its worker, even one that is stopped or stuck.
_ORPHANED: Final = "for _ in 1 2 3; do kill -TERM $$ || exit; sleep 0.5; done"


@dataclass(frozen=True)
class Said:
    """One line of a candidate's log: an event and when it was (seconds since the epoch)."""

    event: str
    at: float
    fields: Mapping[str, Any]


def events_in(lines: str) -> list[Said]:
    """The events in a JSON log; lines that are something else, or half written, are left out
    (pure).
    """
    found = []
    for text in lines.splitlines():
        try:
            line = json.loads(text)
            found.append(
                Said(
                    line["event"],
                    datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp(),
                    line,
                )
            )
        except (ValueError, KeyError, TypeError):
            continue  # a traceback, a warning of Python, the last line in the making
    return found


class Contender:
    """A candidate as a process: ``leaderq run`` as its user would start it, its JSON log in a file.

    It does not outlive the demo, whatever ends the demo: its guardian is asked to leave then.
    ``id`` is its name, ``log_path`` where it logs; ``arguments`` go behind ``leaderq run``.
    """

    def __init__(
        self, id: str, *, folder: Path, arguments: list[str], environment: Mapping[str, str]
    ) -> None:
        self.id = id
        self.log_path = folder / f"{id}.log"
        self._folder = folder
        self._command = [sys.executable, "-m", "leaderq", "run", *arguments, "--id", id]
        self._environment = dict(environment)
        self._process: WatchedProcess | None = None

    def start(self) -> None:
        """Start it, or start it again after its end; the log goes on."""
        self._process = WatchedProcess(
            self._command,
            log_path=self.log_path,
            folder=self._folder,
            env=self._environment,
            orphaned=_ORPHANED,
        )

    @property
    def exit_code(self) -> int | None:
        """``None`` while it runs; negative is the signal that ended it."""
        return self._process.exit_code if self._process is not None else None

    def said(self, event: str, **fields: Any) -> list[Said]:
        """What it logged so far for ``event`` with these values."""
        return [
            line
            for line in events_in(self._log())
            if line.event == event
            and all(line.fields.get(key) == value for key, value in fields.items())
        ]

    def last_words(self) -> str:
        """The last thing it logged, for an error message."""
        lines = self._log().splitlines() or ["nothing"]
        try:
            return str(json.loads(lines[-1])["message"])
        except (ValueError, KeyError, TypeError):
            return lines[-1]

    def _log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; returns whether it came."""
        return self._process is None or self._process.wait(timeout_s)

    def ask_to_leave(self) -> None:
        """SIGTERM to the guardian, which passes it on; the third kills the worker."""
        if self._process is not None:
            self._process.send(signal.SIGTERM)

    def end(self) -> None:
        """Make sure that it is gone."""
        for _ in range(3):
            if self.wait(0):
                break
            self.ask_to_leave()
            self.wait(1.0)
        if self._process is not None:
            self._process.end(grace_s=0)


CAREER = career_name(AdBilling)
TOPIC = str(AdBilling.topics)
SESSION_TIMEOUT_S = 4.0
FEEDING_S = 30.0  # about as long as the changes of leader take
_TARGET = "leaderq.cli.demo.ad_billing:AdBilling"
_LOOK_S = 0.03


class DemoFailed(LeaderqError):
    """The demo could not go on: something did not happen in time."""


@dataclass
class DemoStage:
    """What the story is played with."""

    screen: Screen
    ledger: Path
    session: Session
    observer: Observer
    operator: Operator
    feeding: Feeding
    servers: Sequence[Server] = ()
    contenders: dict[str, Contender] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)

    def until(self, fact: Callable[[], bool], what: str, *, timeout_s: float) -> None:
        """Wait for ``fact``.

        Raises :class:`DemoFailed` when it does not come within ``timeout_s`` (times the patience)
        or a server or candidate dies meanwhile, and what the feeder raised.
        """
        end = now_s() + timeout_s * patience()
        while not fact():
            self.feeding.check()
            self._check_processes()
            if now_s() >= end:
                said = "; ".join(
                    f"{each.id}: {each.last_words()}" for each in self.contenders.values()
                )
                raise DemoFailed(
                    f"waited {timeout_s * patience():.0f} s in vain until {what}; last log lines:"
                    f" {said}"
                )
            time.sleep(_LOOK_S)

    def billed(self) -> tuple[int, int]:
        """How many records are billed, and the term of the newest bill; cheap enough to be asked
        often.
        """
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
        """Ask all to leave, and return when they have."""
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
                raise DemoFailed(
                    f"candidate {contender.id} ended by itself with code {code}:"
                    f" {contender.last_words()}"
                )


@contextmanager
def put_up(
    pair: ServerPair,
    folder: DemoFolder,
    source: InputLines,
    records: int,
    *,
    screen: Screen,
    interruption: Interruption,
    on_end: Callable[[], None],
) -> Iterator[DemoStage]:
    """The stage, with three candidates starting; ``on_end`` is called before anything is taken
    down.
    """
    _fetch_jars(screen)
    with ExitStack() as stack:
        for server in (pair.zookeeper, pair.kafka):
            with interruption.held():
                stack.enter_context(server)
            screen.tell(f"{server.what} is up at {server.address}")
        session = stack.enter_context(connect(pair.zookeeper_address, timeout_s=10.0))
        observer = Observer(session, CAREER)
        _refuse_used_servers(pair, observer)
        feeding = Feeding(pair.kafka_address, TOPIC, source.lines, Pace(records, FEEDING_S))
        stack.callback(feeding.stop)
        stage = DemoStage(
            screen,
            folder.ledger,
            session,
            observer,
            Operator(session, CAREER),
            feeding,
            [pair.zookeeper, pair.kafka],
        )
        stack.callback(stage.stop_contenders)
        stack.callback(on_end)
        for name in ("a", "b", "c"):
            stage.contenders[name] = _contender(name, pair, folder)
            with interruption.held():
                stage.contenders[name].start()
        yield stage


def _fetch_jars(screen: Screen) -> None:
    """Apart from the start of the servers, since it may take long the first time, and can be
    interrupted at any moment.
    """
    for what in ("ZooKeeper", "Kafka"):
        if runs_from_jars(what):
            class_path(what.lower(), progress=screen.tell)


def _contender(name: str, pair: ServerPair, folder: DemoFolder) -> Contender:
    arguments = [_TARGET, "--zookeeper", pair.zookeeper_address, "--kafka", pair.kafka_address]
    arguments += ["--session-timeout-s", f"{SESSION_TIMEOUT_S:g}", "--log-format", "json"]
    # Settings of the user's are for the user's candidates.
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("LEADERQ_")
    }
    environment[LEDGER_VARIABLE] = str(folder.ledger)
    return Contender(name, folder=folder.path, arguments=arguments, environment=environment)


def _refuse_used_servers(pair: ServerPair, observer: Observer) -> None:
    """On servers given by address somebody may be at work."""
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
