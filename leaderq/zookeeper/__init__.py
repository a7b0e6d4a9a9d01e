"""leaderq's ZooKeeper session, on top of kazoo: every wait is bounded, and every outcome is told.

The only package that imports kazoo. Start with :func:`connect`; :class:`Session` says what is
promised. Names are loaded when they are first used, so a process that only ends sessions never
loads kazoo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderq.base.lazy import exported

if TYPE_CHECKING:
    from leaderq.zookeeper.ending import SessionEnder as SessionEnder
    from leaderq.zookeeper.ending import end_session as end_session
    from leaderq.zookeeper.kazoo_clients import AnyClient as AnyClient
    from leaderq.zookeeper.kazoo_clients import as_session as as_session
    from leaderq.zookeeper.security import Credentials as Credentials
    from leaderq.zookeeper.security import Security as Security
    from leaderq.zookeeper.session import Session as Session
    from leaderq.zookeeper.session import SessionState as SessionState
    from leaderq.zookeeper.session import connect as connect
    from leaderq.zookeeper.watching import Subscription as Subscription
    from leaderq.zookeeper.watching import WatchEvent as WatchEvent
    from leaderq.zookeeper.watching import WatchKind as WatchKind
    from leaderq.zookeeper.wire import Check as Check
    from leaderq.zookeeper.wire import Create as Create
    from leaderq.zookeeper.wire import Delete as Delete
    from leaderq.zookeeper.wire import GetChildren as GetChildren
    from leaderq.zookeeper.wire import GetData as GetData
    from leaderq.zookeeper.wire import Operation as Operation
    from leaderq.zookeeper.wire import Read as Read
    from leaderq.zookeeper.wire import SetData as SetData
    from leaderq.zookeeper.wire import Stat as Stat

__getattr__, __all__ = exported(
    __name__,
    {
        "ending": "SessionEnder end_session",
        "kazoo_clients": "AnyClient as_session",
        "security": "Credentials Security",
        "session": "Session SessionState connect",
        "watching": "Subscription WatchEvent WatchKind",
        "wire": "Check Create Delete GetChildren GetData Operation Read SetData Stat",
    },
)
