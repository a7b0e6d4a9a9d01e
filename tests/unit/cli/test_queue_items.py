"""How the verbs about queues read items and show them."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import sys
import termios
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.cli.queue.drain import ItemWriter, Outlet
from leaderq.cli.queue.put import (
    BadEntry,
    Entry,
    Keys,
    from_json,
    pieces,
)
from leaderq.cli.queue.showing import brief, item_json
from leaderq.cli.signals import Stopping
from leaderq.queues.admin import Browsed
from leaderq.queues.admin.contents import read
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.payload import encode
from leaderq.testing import eventually
from leaderq.zookeeper import Stat

STAT = Stat(0, 0, 1_700_000_000_000, 0, 4, 0, 0, 0, 0, 0, 0)


class Trickle:
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._source, self._size = io.BytesIO(data), size

    def read1(self, size: int = -1, /) -> bytes:
        return self._source.read(self._size)


def item(name: str, *values: bytes) -> Browsed:
    return read(name, encode(values), STAT.ctime_ms, STAT.version)


@given(values=st.lists(st.binary().filter(lambda one: b"\n" not in one)), size=st.integers(1, 9))
def test_lines_are_what_they_were_however_they_come(values, size):
    data = b"".join(value + b"\n" for value in values)
    assert [one for batch in pieces(Trickle(data, size), b"\n") for one in batch] == values


def test_what_one_verb_writes_the_other_reads():
    for kind, name, keys in (
        (QueueKind.ID, "queue-|x|0000000001", Keys(id="x")),
        (QueueKind.PRIORITY, "queue-0FFFFFFFB0000000001", Keys(priority=-5)),
        (QueueKind.DELAY, "queue-|18BCFE56800|0000000001", Keys(due_ms=1_700_000_000_000)),
        (QueueKind.PLAIN, "queue-0000000001", Keys()),
    ):
        said = json.dumps(item_json(item(name, b"text", b"\xff", b""), kind))
        assert from_json(7, said.encode()) == Entry(7, (b"text", b"\xff", b""), keys)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "is not JSON"),
        (b'"a"', "is not a JSON object"),
        (b"{}", 'has neither "values", a list, nor "value"'),
        (b'{"values": "a"}', "nor"),
        (b'{"values": [null]}', "neither text nor"),
        (b'{"values": [{"base64": "?"}]}', "is not base64"),
        (b'{"value": "a", "priority": true}', 'has a "priority" that is not a whole number'),
        (b'{"value": "a", "id": 3}', 'has a "id" that is not text'),
        (b'{"corrupt": "x", "data": ""}', "was a corrupt item"),
    ],
)
def test_a_line_that_is_no_item_says_why(line, said):
    with pytest.raises(BadEntry, match=said):
        from_json(1, line)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain", "plain"),
        ("ä\n\t\x1b[31m".encode(), r"ä\n\t\x1b[31m"),
        (b"\xff\x00", "(hexadecimal) ff 00"),
        (b"", ""),
        (b"x" * 60, "x" * 60),
        (b"x" * 61, "x" * 59 + "…"),
        ("ä".encode() * 500, "ä" * 59 + "…"),
        (b"\xff" * 500, "(hexadecimal) " + "ff " * 15 + "…"),
    ],
)
def test_an_item_is_shown_on_one_short_line_that_harms_no_terminal(data, shown):
    assert brief(data) == shown


def test_the_writer_counts_what_a_reader_will_take_for_several():
    out: list[bytes] = []
    writer = ItemWriter(out.append, as_json=False, as_base64=False, null=False)
    writer.write(item("queue-0000000001", b"a\nb", b"c"))
    writer.write(item("queue-0000000002"))
    assert (out, writer.ambiguous) == ([b"a\nb\nc\n"], 1)


def readable(fd: int) -> int:
    """How many bytes lie in a pipe."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_signal_prevents_a_piece_or_lets_it_be_written_to_its_end():
    """The pipe is full; the signal comes before a piece is begun, or amid a long one."""
    source, sink = os.pipe()
    try:
        with Stopping() as stopping:
            outlet = Outlet(sink, stopping)
            room = fcntl.fcntl(sink, fcntl.F_GETPIPE_SZ)

            def ask_and_read() -> None:
                eventually(lambda: readable(source) == room)  # it has begun, and waits for room
                signal.raise_signal(signal.SIGTERM)
                os.read(source, room)

            reading = threading.Thread(target=ask_and_read)
            reading.start()
            outlet.write(bytes(room + 100))
            reading.join()
            assert stopping.is_asked
            with pytest.raises(KeyboardInterrupt):
                outlet.write(b"x")
        assert os.read(source, room) == bytes(100)
        with Stopping() as stopping:
            outlet = Outlet(sink, stopping)
            outlet.write(bytes(room))
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                outlet.write(b"x")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        os.close(source)
        os.close(sink)
