"""A simulated ZooKeeper ensemble: see :class:`Ensemble`."""

from leaderq.testing.simulation.ensemble.ensemble import Ensemble
from leaderq.testing.simulation.ensemble.messages import (
    Connected,
    Hello,
    Hungup,
    Refused,
    ServerAnswer,
    ServerEvent,
)
from leaderq.testing.simulation.ensemble.server import ServerEnd

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
