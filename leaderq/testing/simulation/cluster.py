"""Simulated workers with their guardians, and the servers for which they compete.

A worker is what ``leaderq run`` starts: the real session, runner and candidate, and the user's
career. Its guardian is a process of its own on the same host. The guardian learns everything from
the real reports, and decides with the real :class:`~leaderq.running.watchdog.Watchdog`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import Any

from leaderq.base.exits import ExitCode
from leaderq.career import ILeaderCareer
from leaderq.config import Settings
from leaderq.errors import LeaderqError
from leaderq.events import EventBus
from leaderq.running.guardian import KnownSession, _known_session
from leaderq.running.guardian_link import GuardianLink, Message
from leaderq.running.runner import Runner
from leaderq.running.watchdog import Intervention, LeaseReport, Watchdog
from leaderq.testing.simulation.client import SimulatedEnder
from leaderq.testing.simulation.ensemble import Ensemble
from leaderq.testing.simulation.ensemble.tree import Tree
from leaderq.testing.simulation.network import Network
from leaderq.testing.simulation.primitives import SimulatedEvent
from leaderq.testing.simulation.scheduler import EPOCH_S, Process, World
from leaderq.zookeeper import Session, connect

ADDRESS = "10.0.0.0:2181"


class SimulatedGuardian:
    """Watches over one simulated worker."""

    def __init__(self, cluster: SimulatedCluster, worker: Process) -> None:
        self.process = cluster.world.process(f"{worker.name}/guardian", worker.host)
        self._cluster = cluster
        self._worker = worker
        self._session: KnownSession | None = None
        self._watchdog = Watchdog()
        self._news = SimulatedEvent()
        self.is_done = False
        worker.deaths.append(self._news.set)
        worker.thaws.append(self._news.set)
        self.process.spawn(self._stay, "guardian")

    def hear(self, message: Message) -> None:
        """Take in one of the worker's reports."""
        if "session" in message:
            self._session = _known_session(message)
        if "term" in message:
            report = LeaseReport(**message) if message["term"] is not None else None
            former, self._watchdog = self._watchdog.report, self._watchdog.heard(report)
            if report is not None and former is not None:
                is_longer = report.lease_until_s >= former.lease_until_s
                if is_longer and report == former._replace(lease_until_s=report.lease_until_s):
                    return  # a look when the former one is due will do
        self._news.set()

    def _stay(self) -> None:
        clock_s = self.process.clock_s
        while self._worker.alive:
            due_s = self._watchdog.due_s
            self._news.wait(None if due_s is None else max(0.0, due_s - clock_s()))
            self._news.clear()
            self._watchdog, what = self._watchdog.look(clock_s(), stopped=self._worker.frozen)
            if what is Intervention.LEAVE_ALONE:
                continue
            if what is Intervention.KILL:
                self._worker.kill()
            elif what is Intervention.TERMINATE:
                self._cluster.terminate(self._worker)
        known = self._session
        if known is not None:
            SimulatedEnder(self._cluster.network).end(
                known.credentials, timeout_s=known.timeout_s, session_timeout_s=known.timeout_s
            )
        self.is_done = True


class SimulatedLink(GuardianLink):
    """The worker's end of the link to a simulated guardian."""

    def __init__(self, guardian: SimulatedGuardian) -> None:
        self._guardian = guardian
        self._begin(guardian.process.pid)

    @property
    def is_shared(self) -> bool:
        """True, so that nobody looks for processes that the career has started: there are none."""
        return True

    def _send(self) -> None:
        messages = list(self._unsent)
        self._unsent.clear()
        if self._newest_report is not None:
            messages.append(self._newest_report)
            self._newest_report = None
        if self._guardian.process.alive:
            for message in messages:
                self._guardian.hear(message)

    def _listen(self) -> None:
        guardian, gone = self._guardian.process, SimulatedEvent()
        guardian.deaths.append(gone.set)
        if guardian.alive:
            gone.wait()


class SimulatedWorker:
    """One candidate: a process that runs a career, and is started again when it has died."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        make: Callable[[], ILeaderCareer],
        *,
        has_guardian: bool = True,
        **settings: Any,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self._make = make
        self._has_guardian = has_guardian
        self._settings = Settings(id=name, session_timeout_s=cluster.timeout_s, **settings)
        self.process: Process
        """The newest one, once it was started."""
        self.guardian: SimulatedGuardian | None = None
        self.runner: Runner | None = None
        self._starts = 0

    @property
    def is_gone(self) -> bool:
        """Whether the process and its guardian have ended, so that a new process may be started."""
        if not self._starts:
            return True
        guardian = self.guardian
        return not self.process.alive and (
            guardian is None or guardian.is_done or not guardian.process.alive
        )

    @property
    def session(self) -> Session | None:
        """The session of the worker's process; ``None`` before the process has one."""
        return None if self.runner is None else self.runner._session

    @property
    def is_leading(self) -> bool:
        """Whether it holds a term."""
        return self.runner is not None and self.runner._term is not None

    def start(self) -> None:
        """Start the worker's process, unless it runs."""
        if not self.is_gone:
            return
        self._starts += 1
        world, network = self.cluster.world, self.cluster.network
        process = world.process(f"{self.name}.{self._starts}", f"host-{self.name}")
        process.deaths.append(lambda: network.closed_by_death(process))
        self.process = process
        self.runner = None
        self.guardian = SimulatedGuardian(self.cluster, process) if self._has_guardian else None
        process.spawn(self._run, "main")

    def _run(self) -> None:
        process = self.process
        timeout_s = self.cluster.timeout_s
        try:
            session = connect(ADDRESS, timeout_s=timeout_s, connect_timeout_s=3 * timeout_s)
        except LeaderqError:
            process.exit(ExitCode.UNREACHABLE)
            return
        link = SimulatedLink(self.guardian) if self.guardian is not None else None
        code: int = ExitCode.OK
        self.runner = Runner(
            self._make(),
            session,
            settings=self._settings,
            events=EventBus(),
            guardian=link,
            leave=process.exit,
        )
        try:
            code = self.runner.run()
        except LeaderqError as error:
            self.cluster.world.note("career failed", error=str(error))
            code = ExitCode.FAILED
        if session.close() and link is not None:
            link.forget_session()
        process.exit(code)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.cluster.terminate(self.process)


class SimulatedCluster:
    """Servers, a network and workers in one world."""

    def __init__(
        self, world: World, *, timeout_s: float = 4.0, servers: int = 1, tick_s: float | None = None
    ) -> None:
        self.world = world
        self.timeout_s = timeout_s
        self.tick_s = timeout_s / 5 if tick_s is None else tick_s
        self.ensemble = Ensemble(
            now=partial(attrgetter("now_s"), world),
            at=world.at,
            delay=self._delay_s,
            servers=servers,
            tick_s=self.tick_s,
            wall_ms=lambda: int((EPOCH_S + world.now_s) * 1000),
        )
        self.network = Network(world, self.ensemble)
        self.workers: list[SimulatedWorker] = []

    @property
    def tree(self) -> Tree:
        """The znodes, as the most advanced server sees them."""
        return max(self.ensemble.servers, key=lambda one: one.last_zxid).tree

    def znodes(self) -> dict[str, bytes]:
        """All znodes and their data, as in :attr:`tree`."""
        return {path: node.data or b"" for path, node in self.tree.nodes.items()}

    def standing_sessions(self) -> set[int]:
        """The sessions that own a znode now, as in :attr:`tree`."""
        stats = [node.stat for node in self.tree.nodes.values()]
        return {stat.ephemeralOwner for stat in stats if stat.ephemeralOwner}

    def _delay_s(self, what: str) -> float:
        drawn = self.world.network()
        return 0.0002 + 0.002 * drawn * drawn * (20 if drawn > 0.99 else 1)

    def worker(
        self, name: str, make: Callable[[], ILeaderCareer], **settings: Any
    ) -> SimulatedWorker:
        """Add a worker; it is not started yet."""
        made = SimulatedWorker(self, name, make, **settings)
        self.workers.append(made)
        return made

    def keep_running(self) -> None:
        """Start every worker. Every half second, start those again that are dead."""
        for one in self.workers:
            if not (one._starts and one.process.alive):
                one.start()
        self.world.after(0.5, self.keep_running)

    def terminate(self, process: Process) -> None:
        """Send SIGTERM: the first one asks the worker to hand over, the second one ends the
        process.
        """
        for worker in self.workers:
            runner = worker.runner
            if worker.process is not process or not process.alive:
                continue
            if runner is None:
                process.kill(-15)
                continue
            stopping = runner.look().stopping
            with suppress(LeaderqError):
                process.spawn(runner.give_up if stopping else runner.stop, "signal")
