"""Items on standard output: each is flushed before it counts as written, so a reader that went away is noticed at the first item that
it did not take."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, BinaryIO

from leaderq.cli.queue.showing import item_json

if TYPE_CHECKING:
    from leaderq.queues.keeping import Browsed
    from leaderq.queues.wire.kinds import Kind


class ItemWriter:
    """Writes znodes: as JSON one object each, else each of their values, ended by ``end``."""

    def __init__(
        self, *, as_json: bool, as_base64: bool, null: bool, kind: Kind | None = None, stream: BinaryIO | None = None
    ) -> None:
        self.kind = kind
        self.ambiguous = 0
        """Values written so far that hold what ends a value, so that a reader will take them for several."""
        self._as_json = as_json
        self._as_base64 = as_base64
        self._end = b"\0" if null else b"\n"
        self._stream = stream or sys.stdout.buffer

    def write(self, one: Browsed) -> None:
        """Returns when it is out of our hands. Raises what the stream raises."""
        if self._as_json:
            line = json.dumps(item_json(one, self.kind), ensure_ascii=False).encode() + b"\n"
        else:
            line = b"".join(self._line(value) + self._end for value in one.items or ())
        self._stream.write(line)
        self._stream.flush()

    def _line(self, value: bytes) -> bytes:
        if self._as_base64:
            return base64.b64encode(value)
        self.ambiguous += self._end in value
        return value
