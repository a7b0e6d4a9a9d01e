"""Threads and sockets for one kazoo client: kazoo's threading handler with every wait bounded.

What differs from ``SequentialThreadingHandler``: ``stop`` joins for a bounded time and runs nothing at exit of the
process; threads carry the session's name; one dead host costs a part of the session time-out instead of all of it; a wait
on sockets is one ``poll`` instead of an epoll set made and closed each time; TLS settings are read once, and a failed
handshake leaks no socket.
"""

from __future__ import annotations

import logging
import queue
import select
import socket
import ssl
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, ClassVar

from kazoo.handlers.threading import SequentialThreadingHandler

log = logging.getLogger(__name__)
_POLL_IN = select.POLLIN | select.POLLPRI | select.POLLHUP | select.POLLERR
_POLL_OUT = select.POLLOUT | select.POLLHUP | select.POLLERR


class Transport(SequentialThreadingHandler):
    """One client's threads and sockets. ``connect_limit`` says, in seconds, how long one server may take to accept."""

    name = "leaderq"
    queue_impl: ClassVar[type[Any]] = queue.SimpleQueue

    def __init__(self, label: str, *, connect_limit: Callable[[], float], tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._label = label
        self._connect_limit = connect_limit
        self._tls = tls

    def start(self) -> None:
        with self._state_change:
            if self._running:
                return
            self._running = True
            for jobs, duty in ((self.completion_queue, "answers"), (self.callback_queue, "watches")):
                thread = threading.Thread(target=_work, args=(jobs,), name=f"{self._label}-{duty}", daemon=True)
                thread.start()
                self._workers.append(thread)

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the workers after what is queued; never waits longer than ``timeout_s`` for a callback that blocks."""
        with self._state_change:
            if not self._running:
                return
            self._running = False
            workers, self._workers = self._workers, []
            self.completion_queue.put(None)
            self.callback_queue.put(None)
        deadline = monotonic() + timeout_s
        for worker in workers:
            if worker is not threading.current_thread():
                worker.join(max(0.0, deadline - monotonic()))
                if worker.is_alive():
                    log.warning("thread %s is held up by a callback; it is left behind", worker.name)

    def complete(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the completion thread; at once, here, if that has ended."""
        with self._state_change:  # so that nothing is queued behind the end mark, where it would be lost
            if self._running:
                self.completion_queue.put(job)
                return
        _contained(job)

    def watch(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the watch thread; not at all once the client is stopped."""
        self.callback_queue.put(job)

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = threading.Thread(target=func, args=args, kwargs=kwargs, name=f"{self._label}-connection", daemon=True)
        thread.start()
        return thread

    def select(
        self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        poller = select.poll()
        readers = {sock.fileno(): sock for sock in rlist}
        writers = {sock.fileno(): sock for sock in wlist}
        if min((*readers, *writers), default=-1) < 0:
            raise OSError("the socket is closed")  # kazoo makes a dropped connection of an OSError
        for fd in readers.keys() | writers.keys():
            poller.register(fd, (_POLL_IN if fd in readers else 0) | (_POLL_OUT if fd in writers else 0))
        ready = dict(poller.poll(None if timeout is None else max(0.0, timeout) * 1000))
        return (
            [sock for fd, sock in readers.items() if ready.get(fd, 0) & (_POLL_IN | select.POLLNVAL)],
            [sock for fd, sock in writers.items() if ready.get(fd, 0) & (_POLL_OUT | select.POLLNVAL)],
            [],
        )

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The wake-up pipe. Non-blocking: a full one must not hold up a caller, since its bytes say "wake" already."""
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        return ends

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        limit = self._connect_limit()
        sock = socket.create_connection(address, limit if timeout is None else min(timeout, limit))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if self._tls is None else self._tls.wrap_socket(sock, server_hostname=hostname or address[0])
        except BaseException:
            sock.close()
            raise


def _work(jobs: queue.SimpleQueue[Callable[[], object] | None]) -> None:
    while (job := jobs.get()) is not None:
        _contained(job)
        del job  # or the last answer would be kept alive until the next one


def _contained(job: Callable[[], object]) -> None:
    try:
        job()
    except (Exception, SystemExit):  # neither may end the thread, on which all other callbacks depend
        log.exception("a callback raised; the session goes on")
