"""``leaderq queue drain``: the items of a queue go to standard output, so that it is known of each
whether it was written.

Past Python's buffers, which would hold back what an interruption left over, and write it at the end
after all. A pipe takes :data:`PIPE_BUF` bytes at once or not at all, when it says that it is ready:
so nothing waits while bytes are under way.
"""

from __future__ import annotations

import array
import base64
import fcntl
import json
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
from typing import TYPE_CHECKING

import click

from leaderq.cli.options import Given, Verb, json_option, needs_yes, number, switch, yes_option
from leaderq.cli.output import progress
from leaderq.cli.queue.options import (
    keeping_recipe,
    kind_option,
    lock_path_option,
    queue_argument,
    takes_connection,
)
from leaderq.cli.queue.showing import item_json
from leaderq.cli.signals import Stopping
from leaderq.clock import now_s
from leaderq.errors import ConfigurationError
from leaderq.exits import ExitCode

if TYPE_CHECKING:
    from leaderq.queues.admin import Browsed, QueueDrain
    from leaderq.queues.wire.names import QueueKind


_WAIT_S = 60.0
_READ_WITHIN_S = 5.0  # after Ctrl-C, before what lies in the pipe goes back
_FIRST_LOOK_S = 0.001
_LAST_LOOK_S = 0.05


class Outlet:
    """Writes to a file descriptor, and knows what of it was read.

    A signal may prevent a piece, but not tear it: once begun it is written to its end, however long
    the reader takes, unless there is a second signal. Of anything but a pipe all counts as read
    that was written.
    """

    def __init__(self, fd: int, stopping: Stopping) -> None:
        self.written = 0
        self._fd = fd
        self._stopping = stopping
        self._is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)

    @property
    def read(self) -> int:
        """How many of the bytes ``written`` the reader has taken; exact also when it is gone."""
        if not self._is_pipe:
            return self.written
        unread = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, unread)
        return self.written - unread[0]

    def write(self, data: bytes) -> None:
        """Returns when it is out of our hands.

        :raises KeyboardInterrupt: a signal came, and nothing of this was written.
        :raises OSError: the reader is gone (``BrokenPipeError``), the disk is full.
        """
        with self._stopping.safely():
            self._await_room()
        end = self.written + len(data)
        while self.written < end:
            self.written += os.write(self._fd, data[len(data) - (end - self.written) :][:PIPE_BUF])
            if self.written < end:
                self._await_room()

    def await_reader(self, timeout_s: float = math.inf) -> None:
        """Return when all is read, or after ``timeout_s``.

        :raises KeyboardInterrupt: a signal came.
        :raises BrokenPipeError: the reader is gone and has left something.
        """
        until_s = now_s() + timeout_s
        poll, pause_s = select.poll(), _FIRST_LOOK_S
        poll.register(self._fd, 0)  # the reader's end is told of all the same
        with self._stopping.safely() if timeout_s == math.inf else nullcontext():
            while self.read < self.written and now_s() < until_s:
                if poll.poll(pause_s * 1000):
                    if self.read == self.written:
                        return
                    raise BrokenPipeError
                pause_s = min(2 * pause_s, _LAST_LOOK_S)

    def _await_room(self) -> None:
        select.select([], [self._fd], [])


class ItemWriter:
    """Makes lines of znodes: as JSON one object each, else each of their values, ended by a line
    end or NUL.
    """

    def __init__(
        self, send: Callable[[bytes], None], *, as_json: bool, as_base64: bool, null: bool
    ) -> None:
        self.kind: QueueKind | None = None
        self.ambiguous = 0
        """Values written so far that hold what ends a value, so that a reader will take them for
        several.
        """
        self._send = send
        self._as_json = as_json
        self._as_base64 = as_base64
        self._end = b"\0" if null else b"\n"

    def write(self, one: Browsed) -> None:
        """All of it or, if this raises, perhaps a part."""
        if self._as_json:
            self._send(json.dumps(item_json(one, self.kind), ensure_ascii=False).encode() + b"\n")
        elif one.items:
            self._send(b"".join(self._line(value) + self._end for value in one.items))

    def _line(self, value: bytes) -> bytes:
        if self._as_base64:
            return base64.b64encode(value)
        self.ambiguous += self._end in value
        return value


@click.command(cls=Verb)
@takes_connection
@queue_argument
@kind_option
@lock_path_option
@number("--limit", "drain N items at most, those that go first")
@switch("--follow", help="when it is empty, wait for more, until Ctrl-C")
@switch("--null", help="end each item with a NUL instead of a line end")
@switch("--base64", "as_base64", help="write each item in base64")
@yes_option
@json_option
def drain(
    given: Given,
    path: str,
    kind: QueueKind | None,
    lock_path: str | None,
    limit: int | None,
    follow: bool,
    null: bool,
    as_base64: bool,
    yes: bool,
    as_json: bool,
) -> ExitCode:
    """Write the items at PATH to standard output, one a line and in their order, and take them out
    of the queue.

    All of them: also items of a delay queue that are not due, those that wait after a failure, and
    those of a paused queue. If consumers have a lock path, give it: what they are working on then
    stays. What cannot be read stays too, unless written as JSON. Of a Dyno queue, peek --all --json
    writes out what purge then deletes.
    --json writes one object a znode, with name, id, priority or due time; leaderq queue put
    --from-json takes these again.

    An item is deleted only after it was written or, where standard output is a pipe, after the
    reader has taken it from there. Meanwhile it is set aside, where no consumer sees it. If the
    reader goes away (exit code 1), or at Ctrl-C, what was not taken goes back to its place. After
    kill -9 it stays set aside (queue ls says so) until the next drain, which writes it; a few
    hundred items may then be written a second time. One drain of a queue at a time.

    \b
    Examples:
      leaderq queue drain /orders --lock-path /orders-locks --yes > orders.txt
      leaderq queue drain /orders --json --limit 1000 --yes | jq -r .values[]
      leaderq queue drain /orders --follow --yes | ./handle-each-line
    """
    if sum((null, as_base64, as_json)) > 1 and not (null and as_base64 and not as_json):
        raise ConfigurationError("--json stands alone: it needs neither --null nor --base64")
    needs_yes(yes, f"this takes the items at {path} out of the queue")
    with Stopping() as stopping, keeping_recipe(given, path, kind, lock_path) as keeper:
        outlet_fd = sys.stdout.fileno()
        outlet = Outlet(outlet_fd, stopping)
        writer = ItemWriter(outlet.write, as_json=as_json, as_base64=as_base64, null=null)
        drained = _Drained(writer, outlet, corrupt_too=as_json)
        is_shown = not (follow or sys.stdout.isatty())
        total = min(limit or 2**31, keeper.depth())
        try:
            with (
                keeper.drain() as draining,
                progress(total, "draining", wanted=is_shown) as on_progress,
            ):
                stopping.on_ask = draining.wake
                drained.run(draining, limit, on_progress)
                while follow and drained.count != limit:
                    draining.settle()
                    stopping.check()
                    draining.await_items(_WAIT_S)
                    drained.run(draining, limit and limit - drained.count, on_progress)
        except KeyboardInterrupt:
            if not follow:
                raise
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), outlet_fd)  # nothing is flushed to it at exit
            click.echo("the reader went away; what it had not read went back", err=True)
            return ExitCode.FAILED
        finally:
            drained.sum_up(path)
        if drained.count != limit and not follow and (left := keeper.depth()):
            click.echo(
                f"{left} left there: held by consumers, put since, foreign, or not to be read",
                err=True,
            )
    return ExitCode.OK


class _Drained:
    """``count``: how many the reader has so far."""

    def __init__(self, writer: ItemWriter, outlet: Outlet, *, corrupt_too: bool) -> None:
        self.count = 0
        self._writer = writer
        self._outlet = outlet
        self._corrupt_too = corrupt_too
        # and perhaps not read; up to which byte
        self._written: deque[tuple[int, Browsed]] = deque()

    def run(
        self, draining: QueueDrain, limit: int | None, on_progress: Callable[[int], None]
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

    def _keep_what_was_read(self, draining: QueueDrain) -> None:
        read = self._outlet.read
        while self._written and self._written[0][0] <= read:
            draining.keep(self._written.popleft()[1])
            self.count += 1
        self._written.clear()  # the rest goes back

    def sum_up(self, path: str) -> None:
        """The last line; also of a drain that was interrupted."""
        click.echo(f"{self.count} drained from {path}", err=True)
        if self._writer.ambiguous:
            click.echo(
                f"{self._writer.ambiguous} of their values hold what ends a value; --json or"
                " --base64 tells them apart",
                err=True,
            )
