"""``leaderq queue drain`` writes the items of a queue to standard output, and knows of each item
whether it was written.

It does not use Python's buffers, because they keep what was left at an interruption, and write it
when the process ends. A pipe that is ready takes :data:`PIPE_BUF` bytes at once, so no write waits
in the middle.
"""

from __future__ import annotations

import array
import base64
import fcntl
import math
import os
import select
import stat
import sys
import termios
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext, suppress
from select import PIPE_BUF

from leaderq.admin.dyno_queues import DynoDrain
from leaderq.base import clock
from leaderq.base.exits import ExitCode
from leaderq.cli.options import JSON, YES, Given, needs_yes, number, switch
from leaderq.cli.output import json_line, progress, require_output, say
from leaderq.cli.queue.options import KIND, LOCK_PATH, QUEUE, keeping, queue_verb
from leaderq.cli.queue.showing import AnyKind, item_json
from leaderq.cli.signals import Stopping
from leaderq.errors import ConfigurationError
from leaderq.queues.admin import Browsed, QueueDrain

_LOOK_AGAIN_S = 1.0
_READ_WITHIN_S = 5.0  # after Ctrl-C, before the bytes in the pipe go back
_FIRST_LOOK_S = 0.001
_LAST_LOOK_S = 0.05


class Outlet:
    """Writes to a file descriptor, and knows how much the reader has read.

    A signal may prevent a write, but not cut it: a write that has begun goes to its end, however
    long the reader takes, unless a second signal comes. If the descriptor is not a pipe, bytes
    count as read once they are written.
    """

    def __init__(self, fd: int, stopping: Stopping) -> None:
        self.written = 0
        self._fd = fd
        self._stopping = stopping
        self._is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)

    @property
    def read(self) -> int:
        """How many of the bytes ``written`` the reader has taken, even if it is gone by now."""
        if not self._is_pipe:
            return self.written
        unread = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, unread)
        return self.written - unread[0]

    def write(self, data: bytes) -> None:
        """Write all of ``data``.

        :raises KeyboardInterrupt: a signal came, and nothing of ``data`` was written.
        :raises OSError: the reader is gone (``BrokenPipeError``), or the disk is full.
        """
        with self._stopping.safely():
            self._await_room()
        end = self.written + len(data)
        while self.written < end:
            self.written += os.write(self._fd, data[len(data) - (end - self.written) :][:PIPE_BUF])
            if self.written < end:
                self._await_room()

    def await_reader(self, timeout_s: float = math.inf) -> None:
        """Return when the reader has taken everything, or after ``timeout_s``.

        :raises KeyboardInterrupt: a signal came; with a ``timeout_s``, a second signal.
        :raises BrokenPipeError: the reader is gone, and has not taken everything.
        """
        until_s = clock.now_s() + timeout_s
        poll, pause_s = select.poll(), _FIRST_LOOK_S
        poll.register(self._fd, 0)  # that the reader is gone is told all the same
        with self._stopping.safely() if timeout_s == math.inf else nullcontext():
            while self.read < self.written and clock.now_s() < until_s:
                if poll.poll(pause_s * 1000):
                    if self.read == self.written:
                        return
                    raise BrokenPipeError
                pause_s = min(2 * pause_s, _LAST_LOOK_S)

    def _await_room(self) -> None:
        select.select([], [self._fd], [])


class ItemWriter:
    """Writes each znode as one JSON object, or each of its values with an end."""

    def __init__(
        self, send: Callable[[bytes], None], *, as_json: bool, as_base64: bool, null: bool
    ) -> None:
        self.kind: AnyKind = None
        self.ambiguous = 0
        """How many values contain the terminator: a reader will take each of them for several."""
        self._send = send
        self._as_json = as_json
        self._as_base64 = as_base64
        self._end = b"\0" if null else b"\n"

    def write(self, one: Browsed) -> None:
        """Write one item; if this raises, a part of it may have been written."""
        if self._as_json:
            self._send(json_line(item_json(one, self.kind)) + b"\n")
        elif one.items:
            self._send(b"".join(self._line(value) + self._end for value in one.items))

    def _line(self, value: bytes) -> bytes:
        if self._as_base64:
            return base64.b64encode(value)
        self.ambiguous += self._end in value
        return value


@queue_verb(
    *QUEUE,
    KIND,
    LOCK_PATH,
    number("--limit", "drain N items at most, those that go first"),
    switch("--follow", help="when it is empty, wait for more, until Ctrl-C"),
    switch("--null", help="end each item with a NUL instead of a line end"),
    switch("--base64", "as_base64", help="write each item in base64"),
    YES,
    JSON,
)
def drain(given: Given) -> ExitCode:
    """Write the items at PATH to standard output, one a line and in their order, and take them out
    of the queue.

    It takes all items: also those of a delay queue that are not due, those that rest after a
    failure, and those of a paused queue. If consumers have a lock path, give it: items that they
    are working on then stay. Unreadable items stay, too, except with --json.

    With --json, each znode is one object, with name, id, priority or due time; leaderq queue put
    --from-json reads these objects. In a Dyno queue, messages that cannot be read become dead
    letters, and messages whose payload is in a body store stay.

    An item is deleted only after it was written or, if standard output is a pipe, after the reader
    has taken it. Until then it is set aside, where no consumer sees it. If the reader goes away or
    the disk is full (exit code 1), or at Ctrl-C, items that were not taken go back to their places.
    After kill -9, they stay set aside (queue ls says so) until the next drain, which writes them; a
    few hundred items may then be written twice. In a Dyno queue, they are delivered again instead.
    Run one drain of a queue at a time.

    \b
    Examples:
      leaderq queue drain /orders --lock-path /orders-locks --yes > orders.txt
      leaderq queue drain /orders --json --limit 1000 --yes | jq -r .values[]
      leaderq queue drain /orders --follow --yes | ./handle-each-line
    """
    if given.as_json and (given.null or given.as_base64):
        raise ConfigurationError("--json stands alone: it needs neither --null nor --base64")
    require_output()
    path, limit, follow = given.path, given.limit, given.follow
    needs_yes(given, f"this takes the items at {path} out of the queue")
    with Stopping() as stopping, keeping(given) as keeper:
        drained = _Drained(given, Outlet(sys.stdout.fileno(), stopping))
        is_shown = not (follow or sys.stdout.isatty())
        total = min(limit or 2**31, keeper.depth())
        try:
            with (
                keeper.drain() as draining,
                progress(total, "draining", wanted=is_shown) as on_progress,
            ):
                drained.run(draining, limit, on_progress)
                while follow and drained.count != limit:
                    draining.settle()
                    with stopping.safely():
                        clock.sleep(_LOOK_AGAIN_S)
                    drained.run(draining, limit and limit - drained.count, on_progress)
        except KeyboardInterrupt:
            if not follow:
                raise
        except OSError as exc:
            if isinstance(exc, BrokenPipeError):
                say("the reader went away; what it had not read went back")
            else:
                say(f"standard output cannot be written: {exc}; what was not written went back")
            return ExitCode.FAILED
        finally:
            drained.sum_up(path)
        if drained.count != limit and not follow and (left := keeper.depth()):
            say(f"{left} left there: held by consumers, put since, foreign, or unreadable")
    return ExitCode.OK


class _Drained:
    """The items that were written. ``count``: how many of them the reader has taken so far."""

    def __init__(self, given: Given, outlet: Outlet) -> None:
        self.count = 0
        self._writer = ItemWriter(
            outlet.write, as_json=given.as_json, as_base64=given.as_base64, null=given.null
        )
        self._outlet = outlet
        self._corrupt_too = given.as_json
        self._written: deque[tuple[int, Browsed]] = deque()  # up to which byte; perhaps not read

    def run(
        self,
        draining: QueueDrain | DynoDrain,
        limit: int | None,
        on_progress: Callable[[int], None],
    ) -> None:
        for batch in draining.batches(limit, corrupt_too=self._corrupt_too):
            self._writer.kind = draining.kind
            try:
                for one in batch:
                    self._writer.write(one)
                    self._written.append((self._outlet.written, one))
                self._outlet.await_reader()
            except KeyboardInterrupt:
                with suppress(BrokenPipeError):  # Ctrl-C reaches the reader too
                    self._outlet.await_reader(_READ_WITHIN_S)
                raise
            finally:
                self._keep_what_was_read(draining)
            on_progress(len(batch))

    def _keep_what_was_read(self, draining: QueueDrain | DynoDrain) -> None:
        read = self._outlet.read
        while self._written and self._written[0][0] <= read:
            draining.keep(self._written.popleft()[1])
            self.count += 1
        self._written.clear()  # the rest goes back

    def sum_up(self, path: str) -> None:
        """Write the last lines, also for a drain that was interrupted."""
        say(f"{self.count} drained from {path}")
        if ambiguous := self._writer.ambiguous:
            say(f"{ambiguous} values contain what ends a value; use --json or --base64")
