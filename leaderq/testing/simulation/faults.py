"""The faults of the nemesis, applied to simulated workers, servers and networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leaderq.testing.nemesis.history import Kind, What
from leaderq.testing.simulation.chronicle import Chronicle
from leaderq.testing.simulation.cluster import SimulatedCluster, SimulatedWorker
from leaderq.testing.simulation.scheduler import Process

_CREATE, _MULTI = 1, 14
Heal = Callable[[], object]
Fault = Callable[[SimulatedCluster, SimulatedWorker], Heal | None]
"""Does a fault to a worker, or to what it needs; returns what heals it, if it is to be healed."""


class Faults:
    """Draws the faults of one life from its seed, and heals them.

    ``kinds``: the kinds to draw from; by default all that a simulation knows (:data:`KINDS`).
    """

    def __init__(
        self, cluster: SimulatedCluster, chronicle: Chronicle, kinds: Sequence[Kind] = ()
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._chronicle = chronicle
        self._number = 0
        self._healing: list[Callable[[], None]] = []
        self._kinds = list(kinds or _ACTIONS)

    def plan(self, faults: int, seconds: float) -> None:
        """Let ``faults`` faults come within the next ``seconds``."""
        for _ in range(faults):
            self._world.at(
                min(1.0, seconds / 4) + self._world.faults() * seconds * 0.9, self.strike
            )

    def strike(self) -> None:
        """Do one fault now; it is healed when its time is over."""
        kind = self._kinds[int(self._world.faults() * len(self._kinds))]
        workers = [one for one in self._cluster.workers if not one.is_gone and one.process.alive]
        if not workers:
            return
        # leaders are struck more often: there is more to see
        leading = [one for one in workers if one.is_leading]
        among = leading if leading and self._world.faults() < 0.7 else workers
        worker = among[int(self._world.faults() * len(among))]
        self._number += 1
        number, pid = self._number, worker.process.pid
        self._chronicle.note(What.FAULT, who=worker.name, pid=pid, number=number, kind=kind)
        heal = _ACTIONS[kind](self._cluster, worker)
        lasts_s = self._cluster.timeout_s * (0.05 + 1.6 * self._world.faults())

        def over() -> None:
            if over in self._healing:
                self._healing.remove(over)
                if heal is not None:
                    heal()
                self._chronicle.note(What.OVER, who=worker.name, pid=pid, number=number, kind=kind)

        self._healing.append(over)
        self._world.at(lasts_s if kind.lasts else 0.0, over)

    def heal_all(self) -> None:
        """Heal whatever lasts."""
        for over in list(self._healing):
            over()


def _guardian_of(worker: SimulatedWorker) -> list[Process]:
    return [] if worker.guardian is None else [worker.guardian.process]


def _kill_guardian(cluster: SimulatedCluster, worker: SimulatedWorker) -> None:
    for one in _guardian_of(worker):
        one.kill()


def _freeze(processes: Callable[[SimulatedWorker], list[Process]]) -> Fault:
    def freeze(cluster: SimulatedCluster, worker: SimulatedWorker) -> Heal:
        frozen = processes(worker)
        for one in frozen:
            one.freeze()

        def thaw() -> None:
            for one in reversed(frozen):
                one.thaw()

        return thaw

    return freeze


def _cut(there: bool, back: bool) -> Fault:
    def cut(cluster: SimulatedCluster, worker: SimulatedWorker) -> Heal:
        host = worker.process.host
        cluster.network.cut(host, there=there, back=back)
        return lambda: cluster.network.heal(host)

    return cut


def _lose_answer(*types: int) -> Fault:
    def lose(cluster: SimulatedCluster, worker: SimulatedWorker) -> Heal:
        host = worker.process.host
        cluster.network.lost_answers[host] = frozenset(types)
        return lambda: cluster.network.lost_answers.pop(host, None)

    return lose


def _end_session(cluster: SimulatedCluster, worker: SimulatedWorker) -> None:
    session = worker.session
    if session is not None and session.id is not None:
        cluster.ensemble.expire(session.id)


def _a_server(cluster: SimulatedCluster) -> int:
    return int(cluster.world.faults() * len(cluster.network.servers))


def _kill_server(cluster: SimulatedCluster, worker: SimulatedWorker) -> Heal:
    server = _a_server(cluster)
    cluster.ensemble.stop(server)
    return lambda: cluster.ensemble.start(server)


def _freeze_server(which: Callable[[SimulatedCluster], int | None]) -> Fault:
    def freeze(cluster: SimulatedCluster, worker: SimulatedWorker) -> Heal | None:
        server = which(cluster)
        if server is None:
            return None
        cluster.ensemble.freeze(server)
        return lambda: cluster.ensemble.thaw(server)

    return freeze


def _way_to_head(cluster: SimulatedCluster, worker: SimulatedWorker) -> tuple[int, int] | None:
    """Return the servers' leader and the server of the worker's session. If both are the same,
    return ``None``, and break the worker's connection so that it may be at another server the next
    time.
    """
    head, server = cluster.ensemble.leader, cluster.network.server_of(worker.process)
    if head is None or server is None:
        return None
    if head == server:
        cluster.network.reset(worker.process)
        return None
    return head, server


def _cut_servers(cluster: SimulatedCluster, worker: SimulatedWorker) -> Heal | None:
    way = _way_to_head(cluster, worker)
    if way is None:
        return None
    cluster.ensemble.cut(*way)
    return lambda: cluster.ensemble.heal(*way)


def _stall_and_cut(cluster: SimulatedCluster, worker: SimulatedWorker) -> Heal | None:
    """Hold messages to the worker's server back, then deliver them at once, late acknowledgements
    included. Then cut the worker and its server off from all others, before the server has told
    whom it has heard.
    """
    way = _way_to_head(cluster, worker)
    if way is None:
        return None
    world, ensemble = cluster.world, cluster.ensemble
    narrow = world.faults() < 0.6  # around the longest silence that a lease survives
    stall_s = cluster.timeout_s * (
        (0.45 if narrow else 0.1) + (0.25 if narrow else 0.7) * world.faults()
    )
    # Mostly among the messages that follow: an acknowledgement is heard, and what it rests on not.
    gap_s = world.faults() * (0.002 if world.faults() < 0.8 else 0.7 * cluster.tick_s)
    is_over = False

    def cut() -> None:
        if is_over:
            return
        for one in cluster.network.servers:
            if one != way[1]:  # one switch is between both and the rest
                ensemble.cut(way[1], one)
                cluster.network.cut(worker.process.host, one)

    def heal() -> None:
        nonlocal is_over
        is_over = True
        for one in cluster.network.servers:
            ensemble.heal(way[1], one)
        cluster.network.heal(worker.process.host)

    (ensemble.stall if world.faults() < 0.7 else ensemble.cut)(*way)
    world.at(stall_s, lambda: ensemble.heal(*way))
    world.at(stall_s + gap_s, cut)
    return heal


def _restart_server(cluster: SimulatedCluster, worker: SimulatedWorker) -> None:
    server = _a_server(cluster)
    cluster.ensemble.stop(server)
    cluster.world.at(0.3, lambda: cluster.ensemble.start(server))


_ACTIONS: dict[Kind, Fault] = {
    Kind.KILL_WORKER: lambda _cluster, worker: worker.process.kill(),
    Kind.KILL_GUARDIAN: _kill_guardian,
    Kind.KILL_BOTH: lambda cluster, worker: cluster.network.lose_host(worker.process.host),
    Kind.FREEZE_WORKER: _freeze(lambda worker: [worker.process]),
    Kind.FREEZE_BOTH: _freeze(lambda worker: [worker.process, *_guardian_of(worker)]),
    Kind.FREEZE_GUARDIAN: _freeze(_guardian_of),
    Kind.BLACK_HOLE: _cut(True, True),
    Kind.BLACK_HOLE_TO_SERVER: _cut(True, False),
    Kind.BLACK_HOLE_TO_CLIENT: _cut(False, True),
    Kind.RESET: lambda cluster, worker: cluster.network.reset(worker.process),
    Kind.LOSE_CREATE: _lose_answer(_CREATE),
    Kind.LOSE_CLAIM: _lose_answer(_MULTI),
    Kind.END_SESSION: _end_session,
    Kind.KILL_SERVER: _kill_server,
    Kind.FREEZE_SERVER: _freeze_server(_a_server),
    Kind.FREEZE_HEAD: _freeze_server(lambda cluster: cluster.ensemble.leader),
    Kind.CUT_SERVERS: _cut_servers,
    Kind.STALL_AND_CUT: _stall_and_cut,
    Kind.RESTART_SERVER: _restart_server,
    Kind.STEP_DOWN: lambda cluster, worker: cluster.terminate(worker.process),
}


KINDS: tuple[Kind, ...] = tuple(_ACTIONS)
"""The faults of the nemesis that a simulation knows."""
