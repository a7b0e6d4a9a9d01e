"""Ports that nobody else takes while a server is down for a moment.

While a server is restarted, any outgoing connection of this host may take a port of the ephemeral
range; a client that reconnects can even get connected to itself. So ports are chosen below that
range, and a file lock holds each of them for the life of its server. Two test sessions on one host
never choose the same port, and the kernel frees the lock of a session that is killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO, Final

from leaderq.base import arguments
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

    :raises ConfigurationError: ``wanted`` is not a port.
    :raises ServerFailed: ``wanted`` is taken or not allowed, or no port is free.
    """
    numbers = [random.randint(_FIRST, _LAST) for _ in range(_TRIES)]
    remedy = f"{_TRIES} ports were tried"
    if wanted is not None:
        is_port = type(wanted) is int and 0 < wanted < 1 << 16
        odd = arguments.wanted("port", wanted, is_port, "1 to 65535, or None to have one chosen")
        arguments.require(odd)
        numbers, remedy = [wanted], "name another, or none to have one chosen"
    for number in numbers:
        try:
            return _leased(number)
        except OSError as exc:
            error = exc
    is_taken = error.errno in (errno.EAGAIN, errno.EADDRINUSE)
    why = "is taken" if is_taken else f"cannot be used: {error}"
    raise ServerFailed(f"port {number} of {HOST} {why}; {remedy}")


def _leased(number: int) -> LeasedPort:
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
        raise
    return LeasedPort(number, lock)
