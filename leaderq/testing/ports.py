"""Ports that nobody else takes while a server is down for a moment.

While a server is restarted, any outgoing connection of this host may take a port of the ephemeral
range; a client that reconnects can even get connected to itself. So ports are chosen below that
range, and a file lock holds each of them for the life of its server. Two test sessions on one host
never choose the same port, and the kernel frees the lock of a session that is killed.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO, Final

from leaderq.errors import ServerFailed

HOST: Final = "127.0.0.1"
_FIRST: Final = 15000
_LAST: Final = 31999  # Linux hands out 32768 and up, others 49152 and up
_TRIES: Final = 500


class LeasedPort:
    """A TCP port of the loopback interface; other sessions do not get it until ``release``."""

    def __init__(self, number: int, lock: IO[str]) -> None:
        self.number = number
        self._lock = lock

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{HOST}:{self.number}"

    def release(self) -> None:
        """Let others have the port; may be called more than once."""
        self._lock.close()


def can_be_leased(number: int) -> bool:
    try:
        lease_port(number).release()
    except ServerFailed:
        return False
    return True


def lease_port(wanted: int | None = None) -> LeasedPort:
    """Lease a free port, or exactly ``wanted``.

    Not guaranteed: that the port is free when the server binds it, because programs that do not
    lease ports may take it. A server that is being started then tries another port.

    :raises ServerFailed: ``wanted`` is taken, or no port is free.
    """
    if wanted is not None:
        leased = _try_lease(wanted)
        if leased is None:
            raise ServerFailed(
                f"port {wanted} of {HOST} is taken; name another, or none to have one chosen"
            )
        return leased
    for _ in range(_TRIES):
        leased = _try_lease(random.randint(_FIRST, _LAST))
        if leased is not None:
            return leased
    raise ServerFailed(f"no free port between {_FIRST} and {_LAST} on {HOST} after {_TRIES} tries")


def _try_lease(number: int) -> LeasedPort | None:
    folder = Path(tempfile.gettempdir()) / f"leaderq-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = (folder / str(number)).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, number))
    except OSError:
        lock.close()
        return None
    return LeasedPort(number, lock)
