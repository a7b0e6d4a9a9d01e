"""The dead letters of a Dyno queue: look, send back, drop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from leaderq import clock
from leaderq.arguments import is_number, require, unless
from leaderq.dyno.layout import group_of, name_prefix, parsed_name
from leaderq.dyno.message import frame_of
from leaderq.dyno.nodes import OVERTAKEN, QueueNodes
from leaderq.dyno.transitions import DeadMessage, Operations
from leaderq.errors import CorruptItem
from leaderq.reading import SizedReader, children_of
from leaderq.zookeeper import Create, Delete

Wanted = Callable[[DeadMessage], bool]
Chosen = Wanted | Iterable[DeadMessage]


class DynoDeadLetters:
    """Get one from :attr:`~leaderq.dyno.DynoQueue.dead_letters`.

    *Guarantees:* a letter is sent back once, or not at all: it vanishes and the message appears in
    one transaction, with its id, payload, headers, group, priority and the time at which it was
    first pushed. It begins with no failures.
    """

    def __init__(self, nodes: QueueNodes) -> None:
        self._nodes, self._paths = nodes, nodes.paths

    def browse(self, wanted: Wanted | None = None) -> Iterator[DeadMessage]:
        """Those that are ``wanted``, by shard and name. Reads about a megabyte at a time."""
        for shard in self._nodes.shards():
            paths = self._paths.shard(shard)
            reader = SizedReader(session := self._nodes.session, paths.dead)
            for name, answer in reader.read_all(sorted(children_of(session, paths.dead))):
                if not isinstance(answer, tuple) or parsed_name(name) is None:
                    continue
                try:
                    letter = DeadMessage.read(answer[0], shard, name)
                except CorruptItem:
                    continue
                if wanted is None or wanted(letter):
                    yield letter

    def redrive(
        self, wanted: Chosen | None = None, *, per_s: float | None = None, dry_run: bool = False
    ) -> int:
        """Send letters back into the queue, those that are ``wanted`` or those given, ``per_s`` a
        second at most; returns their number (also if they only would be sent).
        """
        is_rate = per_s is None or (is_number(per_s) and per_s > 0)
        require(unless(is_rate, f"per_s={per_s!r}: give more than 0 letters a second"))
        count = 0
        for letter in self.browse(wanted) if wanted is None or callable(wanted) else wanted:
            if dry_run or self._apply(self._back(letter)):
                count += 1
            if per_s is not None and not dry_run:
                clock.sleep(1 / per_s)
        return count

    def purge(self, wanted: Chosen | None = None) -> int:
        """Delete letters, as :meth:`redrive`; returns how many were."""
        count = 0
        for letter in self.browse(wanted) if wanted is None or callable(wanted) else wanted:
            if self._apply((Delete(self._paths.shard(letter.shard).dead_letter(letter.name)),)):
                count += 1
                self._nodes.bodies.drop([frame_of(letter.data).body])
        return count

    def _back(self, letter: DeadMessage) -> Operations:
        paths, priority = self._paths.shard(letter.shard), int(letter.name[:2])
        gone, now_ms = Delete(paths.dead_letter(letter.name)), self._nodes.now_ms()
        try:
            frame = letter.frame
        except CorruptItem:  # unchanged: whoever sends it back has repaired the code that reads it
            path = paths.message(name_prefix(priority, now_ms))
            return gone, Create(path, letter.data, sequential=True)
        id = frame.id or f"{letter.shard}/{letter.name}"
        prefix = name_prefix(priority, now_ms, group_of(frame.group))
        message = Create(paths.message(prefix), frame._replace(id=id).packed(), sequential=True)
        return gone, message, Create(self._paths.id(id), letter.shard.encode())

    def _apply(self, operations: Operations) -> bool:
        error = self._nodes.apply(operations)
        if error is None:
            return True
        if isinstance(error, OVERTAKEN):
            return False  # somebody else was faster, or a message of that id is there again
        raise error
