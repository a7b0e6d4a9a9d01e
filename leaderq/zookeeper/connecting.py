"""``leaderq.connect``: from an address to a started session, or to one clear error."""

from __future__ import annotations

from leaderq.errors import ConfigurationError
from leaderq.zookeeper.address import parsed_address
from leaderq.zookeeper.owned import opened
from leaderq.zookeeper.security import NO_SECURITY, Security
from leaderq.zookeeper.session import Session
from leaderq.zookeeper.wire import MAX_REQUEST_BYTES

DEFAULT_TIMEOUT_S = 10.0
DEFAULT_CONNECT_TIMEOUT_S = 15.0


def connect(
    hosts: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
    security: Security | None = None,
    name: str = "",
    max_request_bytes: int = MAX_REQUEST_BYTES,
) -> Session:
    """A started session with the ZooKeeper servers at ``hosts``: ``host:port,host:port/chroot`` (port 2181 unless given).

    ``timeout_s`` is the session time-out asked for; the servers may grant another (``session.timeout_s``). ``name``
    appears in the names of threads. ``max_request_bytes`` is the servers' ``jute.maxbuffer``. The chroot is created if it
    is missing.

    *Guarantees:* returns or raises within ``connect_timeout_s`` and about a second; leaves no thread or socket behind
    when it raises.

    :raises ConfigurationError: the address, a time or the security cannot be used; every problem is named.
    :raises MissingPiece: SASL without the extra ``leaderq[sasl]``.
    :raises ServersUnreachable: no server answered in time.
    :raises AccessRefused: a server refused the credentials.
    """
    address = parsed_address(hosts)
    security = security or NO_SECURITY
    security.validate()
    for what, seconds in (("session time-out", timeout_s), ("connect time-out", connect_timeout_s)):
        if not 0 < seconds < 2**31 / 1000:
            raise ConfigurationError(f"{what} {seconds!r} s is out of range; give a positive number of seconds")
    return opened(
        address,
        timeout_s=timeout_s,
        connect_timeout_s=connect_timeout_s,
        security=security,
        name=name,
        max_request_bytes=max_request_bytes,
    )
