"""Real servers on demand, injected faults, and a pytest plugin: for leaderq's own tests, the demo, and yours.

Importing this package costs nothing: the names below are loaded when first used, and Java, jars and Docker are looked for only
when a server is started.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaderq.testing.fault_proxy import FaultProxy
    from leaderq.testing.kafka_server import KafkaBroker, KafkaCluster
    from leaderq.testing.pair import ServerPair
    from leaderq.testing.waiting import eventually
    from leaderq.testing.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer

__all__ = [
    "FaultProxy",
    "KafkaBroker",
    "KafkaCluster",
    "ServerPair",
    "ZooKeeperEnsemble",
    "ZooKeeperServer",
    "eventually",
]

_HOMES = {
    "FaultProxy": "fault_proxy",
    "KafkaBroker": "kafka_server",
    "KafkaCluster": "kafka_server",
    "ServerPair": "pair",
    "ZooKeeperEnsemble": "zookeeper_server",
    "ZooKeeperServer": "zookeeper_server",
    "eventually": "waiting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
