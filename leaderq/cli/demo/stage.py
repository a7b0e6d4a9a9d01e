"""The demo's stage: servers, topic, candidates and feeder; put up in order, and taken down in the opposite one.

On each failure: what was put up so far is taken down, and the logs are kept. Everything that runs ends with this process even if
it is killed: the servers and the candidates each hold the end of a pipe of ours.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from leaderq import connect
from leaderq.career import career_name
from leaderq.cli.demo.ad_billing.audit import reading
from leaderq.cli.demo.ad_billing.billing import LEDGER_VARIABLE, AdBilling
from leaderq.cli.demo.ad_billing.feed import PARTITIONS
from leaderq.cli.demo.contender import Contender
from leaderq.cli.demo.feeding import Feeding
from leaderq.cli.demo.folder import DemoFolder
from leaderq.cli.demo.input_lines import Input
from leaderq.cli.demo.interruption import Interruption
from leaderq.cli.demo.pace import Pace
from leaderq.cli.demo.screen import Screen
from leaderq.clock import now_s
from leaderq.election import Observer, Operator
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.kafka.topics import create_topics, end_offsets
from leaderq.testing.jars import class_path
from leaderq.testing.pair import ServerPair
from leaderq.testing.provision import runs_from_jars
from leaderq.testing.server import Server
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session

CAREER = career_name(AdBilling)
TOPIC = str(AdBilling.topics)
SESSION_TIMEOUT_S = 4.0
FEEDING_S = 30.0  # about as long as the changes of leader take
_TARGET = "leaderq.cli.demo.ad_billing:AdBilling"
_LOOK_S = 0.03


class DemoFailed(LeaderqError):
    """The demo could not go on: something did not happen in time."""


@dataclass
class Stage:
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

        Raises :class:`DemoFailed` when it does not come within ``timeout_s`` (times the patience) or a server or candidate dies
        meanwhile, and what the feeder raised.
        """
        end = now_s() + timeout_s * patience()
        while not fact():
            self.feeding.check()
            self._check_processes()
            if now_s() >= end:
                said = "; ".join(f"{each.id}: {each.last_words()}" for each in self.contenders.values())
                raise DemoFailed(f"waited {timeout_s * patience():.0f} s in vain until {what}; last log lines: {said}")
            time.sleep(_LOOK_S)

    def billed(self) -> tuple[int, int]:
        """How many records are billed, and the term of the newest bill; cheap enough to be asked often."""
        try:
            with closing(reading(self.ledger)) as connection:
                # Rows are only ever added, so the highest row number is their count.
                newest = connection.execute("SELECT rowid, term FROM billed ORDER BY rowid DESC LIMIT 1").fetchone()
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
                raise DemoFailed(f"candidate {contender.id} ended by itself with code {code}: {contender.last_words()}")


@contextmanager
def put_up(
    pair: ServerPair,
    folder: DemoFolder,
    source: Input,
    records: int,
    *,
    screen: Screen,
    interruption: Interruption,
    on_end: Callable[[], None],
) -> Iterator[Stage]:
    """The stage, with three candidates starting; ``on_end`` is called before anything is taken down."""
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
        stage = Stage(
            screen, folder.ledger, session, observer, Operator(session, CAREER), feeding, [pair.zookeeper, pair.kafka]
        )
        stack.callback(stage.stop_contenders)
        stack.callback(on_end)
        for name in ("a", "b", "c"):
            stage.contenders[name] = _contender(name, pair, folder)
            with interruption.held():
                stage.contenders[name].start()
        yield stage


def _fetch_jars(screen: Screen) -> None:
    """Apart from the start of the servers, since it may take long the first time, and can be interrupted at any moment."""
    for what in ("ZooKeeper", "Kafka"):
        if runs_from_jars(what):
            class_path(what.lower(), progress=screen.tell)


def _contender(name: str, pair: ServerPair, folder: DemoFolder) -> Contender:
    arguments = [_TARGET, "--zookeeper", pair.zookeeper_address, "--kafka", pair.kafka_address]
    arguments += ["--session-timeout-s", f"{SESSION_TIMEOUT_S:g}", "--log-format", "json"]
    # Settings of the user's are for the user's candidates.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LEADERQ_")}
    environment[LEDGER_VARIABLE] = str(folder.ledger)
    return Contender(name, folder=folder.path, arguments=arguments, environment=environment)


def _refuse_used_servers(pair: ServerPair, observer: Observer) -> None:
    """On servers given by address somebody may be at work."""
    if standing := observer.view().candidates:
        raise ConfigurationError(
            f"candidates of {CAREER!r} stand already at ZooKeeper {pair.zookeeper_address!r}: {', '.join(standing)}; "
            "stop them, or unset LEADERQ_ZOOKEEPER so that the demo starts servers of its own"
        )
    create_topics(pair.kafka_address, {TOPIC: PARTITIONS})
    if held := sum(end_offsets(pair.kafka_address, TOPIC).values()):
        raise ConfigurationError(
            f"topic {TOPIC!r} on Kafka {pair.kafka_address!r} holds {held} records already; delete it, or unset LEADERQ_KAFKA "
            "so that the demo starts servers of its own"
        )
