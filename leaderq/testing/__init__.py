"""Real servers on demand, injected faults, a nemesis and a pytest plugin: for leaderq's own tests,
the demo, and your tests.

Importing this package costs nothing. The names below are loaded when they are first used; Java,
jars and Docker are looked for only when a server is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderq.base.lazy import exported

if TYPE_CHECKING:
    from leaderq.testing.fault_proxy import FaultProxy as FaultProxy
    from leaderq.testing.fencing import FencingReport as FencingReport
    from leaderq.testing.fencing import check_fencing as check_fencing
    from leaderq.testing.kafka_server import KafkaBroker as KafkaBroker
    from leaderq.testing.kafka_server import KafkaCluster as KafkaCluster
    from leaderq.testing.kit import Driven as Driven
    from leaderq.testing.kit import FakeTerm as FakeTerm
    from leaderq.testing.kit import adrive as adrive
    from leaderq.testing.kit import drive as drive
    from leaderq.testing.kit import records as records
    from leaderq.testing.kit import term as term
    from leaderq.testing.kit import tick as tick
    from leaderq.testing.offset_store_contract import OffsetStoreContract as OffsetStoreContract
    from leaderq.testing.provision import ServerPair as ServerPair
    from leaderq.testing.waiting import eventually as eventually
    from leaderq.testing.zookeeper_server import ZooKeeperEnsemble as ZooKeeperEnsemble
    from leaderq.testing.zookeeper_server import ZooKeeperServer as ZooKeeperServer

__getattr__, __all__ = exported(
    __name__,
    {
        "fault_proxy": "FaultProxy",
        "fencing": "FencingReport check_fencing",
        "kafka_server": "KafkaBroker KafkaCluster",
        "kit": "Driven FakeTerm adrive drive records term tick",
        "offset_store_contract": "OffsetStoreContract",
        "provision": "ServerPair",
        "waiting": "eventually",
        "zookeeper_server": "ZooKeeperEnsemble ZooKeeperServer",
    },
)
