"""A simulated ZooKeeper ensemble: see :class:`Ensemble`."""

from leaderq.testing.simulation.ensemble.connections import ServerEnd
from leaderq.testing.simulation.ensemble.ensemble import Ensemble
from leaderq.testing.simulation.ensemble.messages import (
    Connected,
    Hello,
    Hungup,
    Refused,
    ServerAnswer,
    ServerEvent,
)

__all__ = [
    "Connected",
    "Ensemble",
    "Hello",
    "Hungup",
    "Refused",
    "ServerAnswer",
    "ServerEnd",
    "ServerEvent",
]
