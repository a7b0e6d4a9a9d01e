"""leaderq's ZooKeeper session: kazoo as the transport, with every wait bounded and nothing left to hope.

The only package that imports kazoo. Start with :func:`connect`; see :class:`Session` for what is promised.
"""

from __future__ import annotations

from leaderq.zookeeper.batches import MultiBatcher
from leaderq.zookeeper.ending import SessionEnder, end_session
from leaderq.zookeeper.kazoo_clients import AnyClient, as_session
from leaderq.zookeeper.security import Credentials, Security
from leaderq.zookeeper.session import Session, SessionState, connect
from leaderq.zookeeper.watching import Subscription, WatchEvent, WatchKind
from leaderq.zookeeper.wire import Check, Create, Delete, GetChildren, GetData, Operation, Read, SetData, Stat

__all__ = [
    "AnyClient",
    "Check",
    "Create",
    "Credentials",
    "Delete",
    "GetChildren",
    "GetData",
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
