"""Programs of a user that lead nothing: a process with a session, started again when it has died.

They suffer the same faults as workers do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leaderq.errors import LeaderqError
from leaderq.testing.nemesis.history import Kind, What
from leaderq.testing.simulation.chronicle import Chronicle
from leaderq.testing.simulation.cluster import ADDRESS, SimulatedCluster, SimulatedWorker
from leaderq.testing.simulation.scheduler import Process, World
from leaderq.zookeeper import Session, connect

_FAULTS = """
KILL_WORKER KILL_BOTH FREEZE_WORKER BLACK_HOLE BLACK_HOLE_TO_SERVER BLACK_HOLE_TO_CLIENT RESET
LOSE_CREATE LOSE_CLAIM END_SESSION KILL_SERVER FREEZE_SERVER RESTART_SERVER
"""
FAULTS = tuple(Kind[name] for name in _FAULTS.split())


class Program(SimulatedWorker):
    """Runs ``main(session)`` in a process of its own; when that returns, it is over."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, main: Callable[[Session], object]
    ) -> None:
        super().__init__(cluster, name, _nothing, has_guardian=False)
        self._main = main
        self._session: Session | None = None
        self.is_done = False
        cluster.workers.append(self)

    @property
    def session(self) -> Session | None:
        return self._session

    @property
    def is_leading(self) -> bool:
        return False

    @property
    def is_gone(self) -> bool:
        return not self._starts or not self.process.alive

    def start(self) -> None:
        if not self.is_done:
            super().start()

    def _run(self) -> None:
        process: Process = self.process
        timeout_s = self.cluster.timeout_s
        try:
            self._session = connect(ADDRESS, timeout_s=timeout_s, connect_timeout_s=3 * timeout_s)
        except LeaderqError:
            process.exit(1)
            return
        self._main(self._session)
        self._session.close()
        self.is_done = True
        process.exit(0)


def note_of(chronicle: Chronicle, what: What, term: Any, **values: Any) -> None:
    """This is done for ``term``, by the process that runs now."""
    task = chronicle._world.current
    pid = 0 if task is None else task.process.pid
    chronicle.note(what, who=term.candidate, pid=pid, term=term.number, **values)


class FaultNotes(Chronicle):
    """Calls ``told(who, values)`` of each fault of a life, as it begins."""

    def __init__(self, world: World, told: Callable[[str, dict[str, Any]], object]) -> None:
        super().__init__(world)
        self._told = told

    def note(self, what: What, *, who: str = "", **values: Any) -> None:
        super().note(what, who=who, **values)
        if what is What.FAULT:
            self._told(who, values)


def _nothing() -> Any:
    raise AssertionError("a program has no career")
