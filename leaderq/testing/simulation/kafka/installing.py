"""Lets the real Kafka careers run on a simulated cluster: the functions that make clients are
replaced by simulated ones, and put back at the end. The network between a process and the cluster
is cut by the host of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

from leaderq.kafka import assembly
from leaderq.kafka.clients import transport
from leaderq.kafka.consuming import consumer_thread
from leaderq.kafka.groups import GroupView
from leaderq.testing.simulation.kafka.cluster import BrokerState, ClusterSettings, Passage
from leaderq.testing.simulation.kafka.consumer import SimulatedConsumer
from leaderq.testing.simulation.kafka.network import SimulatedKafka
from leaderq.testing.simulation.kafka.producer import SimulatedProducer
from leaderq.testing.simulation.scheduler import World

_LEAST_S, _MOST_S = 0.0003, 0.003
_BREAKS_S = 0.05
_SLICE_S = 0.05
"""How late a career that waits for records notices the end of its term; 0.005 s in reality. Most of
a life would be spent in looking.
"""


class KafkaLines:
    """The lines between simulated processes and brokers, as a
    :class:`~leaderq.testing.simulation.kafka.network.KafkaNetwork`.

    A request of a host that is *cut off* is lost, and its sender is told nothing. *losing*: for
    each host, the share of answers that are lost after their requests were carried out; the
    connection then breaks. *slow*: for each host, how many seconds later its requests arrive.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.cut: dict[str, None] = {}
        self.losing: dict[str, float] = {}
        self.slow: dict[str, float] = {}

    def request(self, client: str, broker: int) -> Passage:
        drawn = self._world.network
        task = self._world.current
        host = "" if task is None else task.process.host
        there_s = _LEAST_S + (_MOST_S - _LEAST_S) * drawn() ** 2 + self.slow.get(host, 0.0)
        back_s = _LEAST_S + (_MOST_S - _LEAST_S) * drawn() ** 2
        if host in self.cut:
            return Passage(inf, inf)
        if host in self.losing and drawn() < self.losing[host]:
            return Passage(there_s, inf, there_s + _BREAKS_S)
        return Passage(there_s, back_s)


def simulated_kafka(world: World, *, brokers: int = 1) -> SimulatedKafka:
    """A cluster in ``world``, reached through :class:`KafkaLines`."""
    settings = ClusterSettings(
        brokers=brokers, initial_rebalance_delay_s=0.3, broker_session_s=2.0, failover_s=0.3
    )
    return SimulatedKafka(settings, KafkaLines(world), now=lambda: world.now_s)


@contextmanager
def kafka_installed(kafka: SimulatedKafka) -> Iterator[SimulatedKafka]:
    """Within the block, careers reach ``kafka``, whatever address they are given; see
    :func:`leaderq.testing.simulation.installing.installed`.
    """
    undo: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, made: Any) -> None:
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, made)

    put(transport, "new_consumer", partial(SimulatedConsumer, kafka))
    put(transport, "new_producer", partial(SimulatedProducer, kafka))
    for name, made in _administration(kafka).items():
        put(assembly, name, made)
    put(consumer_thread, "_SLICE_S", _SLICE_S)
    try:
        yield kafka
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)


def _administration(kafka: SimulatedKafka) -> dict[str, Callable[..., Any]]:
    """The functions by which a career asks the brokers for other things than records."""

    def ensure_topic(address: str, topic: str, **_: Any) -> bool:
        if topic in kafka.cluster.topics():
            return False
        kafka.acts(lambda cluster: cluster.create_topic(topic, 1))
        return True

    def nothing(*_: Any, **__: Any) -> None:
        return None

    return {
        "ensure_topic": ensure_topic,
        "existing_topics": lambda address, **_: frozenset(kafka.cluster.topics()),
        "describe_topics": lambda address, topics, **_: {},
        "describe_group": lambda address, group, **_: GroupView(group, "", "", "", ()),
        "offsets_at": lambda address, topics, at_ms, **_: {},
        "stored_offsets": lambda address, group, **_: {},
        "remove_static_members": nothing,
    }


def heal_brokers(kafka: SimulatedKafka) -> None:
    """Start or thaw all brokers that are down or frozen."""
    for broker in kafka.cluster.brokers:
        if kafka.cluster.state_of(broker) is not BrokerState.UP:
            kafka.acts(lambda cluster, at=broker: cluster.start(at))  # type: ignore[misc]
