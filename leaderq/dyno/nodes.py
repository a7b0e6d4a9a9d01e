"""How all parts of one queue reach its znodes."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from leaderq.dyno.bodies import Bodies
from leaderq.dyno.layout import DynoPaths, MessageName, parsed_name
from leaderq.dyno.shard_view import children_of
from leaderq.dyno.transitions import Operations
from leaderq.dyno.writes import apply_all
from leaderq.errors import LeaderqError, QueueClosed
from leaderq.reading import SizedReader
from leaderq.writing import SequencedWriter
from leaderq.zookeeper import Session

MayMatch = Callable[[str, MessageName], bool]
Named = tuple[str, bytes]


@dataclass(slots=True)
class QueueNodes:
    """One queue, as this process uses it."""

    session: Session
    paths: DynoPaths
    shards: tuple[str, ...]
    bodies: Bodies
    now_ms: Callable[[], int]
    is_closed: bool = False
    _pid: int = field(default_factory=os.getpid)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _writer: SequencedWriter | None = None

    def check_open(self) -> None:
        """:raises QueueClosed: it was closed, or belongs to the process that this is a fork of."""
        if os.getpid() != self._pid:
            raise QueueClosed(
                f"the queue {self.paths.root} belongs to process {self._pid}; make one after the"
                " fork"
            )
        if self.is_closed:
            raise QueueClosed(f"the queue {self.paths.root} was closed")

    def writer(self) -> SequencedWriter:
        """Of what is not a consumer's: its guard outlives the session."""
        self.check_open()
        with self._opening:
            if self._writer is None:
                writer = SequencedWriter(self.session, f"{self.paths.pushes}/{uuid.uuid4().hex}")
                writer.open()
                for shard in self.shards:
                    for parent in self.paths.shard(shard).parents:
                        self.session.ensure_path(parent)
                self.session.ensure_path(self.paths.ids)
                self._writer = writer
            return self._writer

    def close_writer(self, timeout_s: float) -> bool:
        with self._opening:
            return self._writer is None or self._writer.close(timeout_s)

    def apply(self, operations: Operations) -> LeaderqError | None:
        """Write these, all or none; returns why they were not."""
        return apply_all(self.writer(), [operations], self.paths.root)[0]

    def messages(self, shard: str, may_match: MayMatch | None = None) -> Iterator[Named]:
        """Names and data of all messages there that may match, about a megabyte at a time."""
        path = self.paths.shard(shard).messages
        parsed = {name: parsed_name(name) for name in children_of(self.session, path)}
        names = [
            name
            for name, said in parsed.items()
            if said and (may_match is None or may_match(shard, said))
        ]
        for name, answer in SizedReader(self.session, path).read_all(names):
            if isinstance(answer, tuple):
                yield name, answer[0]
