"""leaderq's ZooKeeper session: kazoo as the transport, with every wait bounded and nothing left to hope.

The only package that imports kazoo. Start with :func:`connect`; see :class:`Session` for what is promised.
"""

from __future__ import annotations

from leaderq.zookeeper.adopted import AnyClient, as_session
from leaderq.zookeeper.batches import MultiBatcher
from leaderq.zookeeper.connecting import connect
from leaderq.zookeeper.ending import SessionEnder, end_session
from leaderq.zookeeper.operations import Check, Create, Delete, GetChildren, GetData, LateData, Operation, Read, SetData
from leaderq.zookeeper.security import Security
from leaderq.zookeeper.session import Session
from leaderq.zookeeper.stat import Stat
from leaderq.zookeeper.state import Credentials, SessionState
from leaderq.zookeeper.watching import Subscription, WatchEvent, WatchKind

__all__ = [
    "AnyClient",
    "Check",
    "Create",
    "Credentials",
    "Delete",
    "GetChildren",
    "GetData",
    "LateData",
    "MultiBatcher",
    "Operation",
    "Read",
    "Security",
    "Session",
    "SessionEnder",
    "SessionState",
    "SetData",
    "Stat",
    "Subscription",
    "WatchEvent",
    "WatchKind",
    "as_session",
    "connect",
    "end_session",
]
