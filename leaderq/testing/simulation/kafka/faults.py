"""Faults between simulated workers and a simulated Kafka, in addition to those of the nemesis."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from leaderq.testing.simulation.cluster import SimulatedCluster
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.kafka.installing import KafkaLines, heal_brokers
from leaderq.testing.simulation.kafka.network import SimulatedKafka

_OF_KAFKA = 0.5
"""How many of the faults strike Kafka."""
_ALL_AFTER_S = 4.0
"""Where answers are lost for longer than this, all are; else every second one."""


class KafkaFault(Enum):
    """The faults of Kafka, or of a worker's way to it."""

    CUT = "cut from Kafka"
    LOSE_ANSWERS = "lose Kafka's answers"
    STOP_BROKER = "stop broker"
    FREEZE_BROKER = "freeze broker"


class DrainFaults:
    """Draws the faults of one life of a drain, and heals them. Half of them are faults of the
    nemesis.
    """

    def __init__(
        self, cluster: SimulatedCluster, kafka: SimulatedKafka, lines: KafkaLines, faults: Faults
    ) -> None:
        self._cluster, self._world = cluster, cluster.world
        self._kafka, self._lines, self._faults = kafka, lines, faults
        self.spans: list[list[float]] = []
        """When each fault of Kafka began and was over."""

    def plan(self, faults: int, seconds: float) -> None:
        """Let ``faults`` faults come within the next ``seconds``."""
        for _ in range(faults):
            self._world.at(1.0 + self._world.faults() * seconds * 0.9, self._strike)

    def heal_all(self) -> None:
        """Heal whatever lasts."""
        self._faults.heal_all()
        self._lines.cut.clear()
        self._lines.losing.clear()
        heal_brokers(self._kafka)
        for span in self.spans:
            span[1] = min(span[1], self._world.now_s)

    def _strike(self) -> None:
        if self._world.faults() >= _OF_KAFKA:
            self._faults.strike()
            return
        kinds = list(KafkaFault)
        kind = kinds[int(self._world.faults() * len(kinds))]
        workers = self._cluster.workers
        leading = [one for one in workers if one.runner is not None and one.runner._term]
        among = leading or workers
        host = f"host-{among[int(self._world.faults() * len(among))].name}"
        lasts_s = 0.2 + 6.0 * self._world.faults()
        self._world.note("fault", kind=kind.value, host=host, lasts_s=f"{lasts_s:.3f}")
        span = [self._world.now_s, self._world.now_s + lasts_s]
        self.spans.append(span)
        self._world.at(lasts_s, self._begun(kind, host, lasts_s))

    def _begun(self, kind: KafkaFault, host: str, lasts_s: float) -> Callable[[], object]:
        if kind is KafkaFault.CUT:
            self._lines.cut[host] = None
            return lambda: self._lines.cut.pop(host, None)
        if kind is KafkaFault.LOSE_ANSWERS:
            self._lines.losing[host] = 1.0 if lasts_s > _ALL_AFTER_S else 0.5
            return lambda: self._lines.losing.pop(host, None)
        brokers = self._kafka.cluster.brokers
        broker = brokers[int(self._world.faults() * len(brokers))]
        is_stopped = kind is KafkaFault.STOP_BROKER
        self._kafka.acts(lambda all_: (all_.stop if is_stopped else all_.freeze)(broker))
        return lambda: self._kafka.acts(lambda all_: all_.start(broker))
