"""The dead letters of a Dyno queue: look, send back, drop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from leaderq.dyno.layout import group_of, name_prefix, parsed_name
from leaderq.dyno.message import Frame, frame_of, wrong_id
from leaderq.dyno.nodes import QueueNodes, apply_all
from leaderq.dyno.transitions import DeadMessage, Operations
from leaderq.errors import CorruptItem, NodeExists
from leaderq.zookeeper import Create, Delete
from leaderq.zookeeper.reading import SizedReader, children_of
from leaderq.zookeeper.writing.groups import batched
from leaderq.zookeeper.writing.writer import OVERTAKEN

log = logging.getLogger(__name__)
_TOGETHER = 50
"""Letters that are written at a time; each may have a megabyte."""
Wanted = Callable[[DeadMessage], bool]
Chosen = Wanted | Iterable[DeadMessage]


class DynoDeadLetters:
    """Get one from :attr:`~leaderq.dyno.DynoQueue.dead_letters`.

    *Guarantees:* a letter is sent back once, or not at all: it vanishes and the message appears in
    one transaction, with its id, payload, headers, group, priority and the time at which it was
    first pushed. It begins with no failures, and does not expire.
    """

    def __init__(self, nodes: QueueNodes) -> None:
        self._nodes, self._paths = nodes, nodes.paths

    def browse(self, wanted: Wanted | None = None) -> Iterator[DeadMessage]:
        """Yield the letters that are ``wanted`` (all by default), by shard and name. Reads about a
        megabyte at a time.
        """
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

    def redrive(self, wanted: Chosen | None = None) -> int:
        """Send letters back into the queue, those that are ``wanted`` or those given; returns their
        number. One whose id is that of another message by now stays, and is logged.
        """
        return sum(1 for _ in self._each(wanted, self._back))

    def purge(self, wanted: Chosen | None = None) -> int:
        """Delete letters, as :meth:`redrive`; returns how many were."""
        count = 0
        for one in self._each(wanted, lambda letter: (self._gone(letter),)):
            self._nodes.bodies.drop([frame_of(one.data).body])
            count += 1
        return count

    def _gone(self, letter: DeadMessage) -> Delete:
        return Delete(self._paths.shard(letter.shard).dead_letter(letter.name))

    def _back(self, letter: DeadMessage) -> Operations:
        paths, priority = self._paths.shard(letter.shard), int(letter.name[:2])
        gone, now_ms = self._gone(letter), self._nodes.now_ms()
        try:
            frame = letter.frame
        except CorruptItem:  # unchanged: whoever sends it back has repaired the code that reads it
            path = paths.message(name_prefix(priority, now_ms))
            return gone, Create(path, letter.data, sequential=True)
        id = self._id(letter, frame)
        prefix = name_prefix(priority, now_ms, group_of(frame.group))
        message = Create(
            paths.message(prefix), frame._replace(id=id, expires_ms=0).packed(), sequential=True
        )
        ids = (Create(self._paths.id(id), letter.shard.encode()),) if id else ()
        return gone, message, *ids

    def _id(self, letter: DeadMessage, frame: Frame) -> str:
        """The message's own id or, if it had none, its place, if a place can be an id; ``""``
        otherwise.
        """
        place = f"{letter.shard}/{letter.name}"
        return frame.id or ("" if wrong_id(place) else place)

    def _each(
        self, wanted: Chosen | None, operations: Callable[[DeadMessage], Operations]
    ) -> Iterator[DeadMessage]:
        """Write the operations of these, and yield those of which that was done; others were taken
        by somebody who was faster, or have an id that is another's."""
        chosen = self.browse(wanted) if wanted is None or callable(wanted) else wanted
        for letters in batched(chosen, _TOGETHER):
            errors = apply_all(
                self._nodes.writer(), [operations(one) for one in letters], self._paths.root
            )
            for letter, error in zip(letters, errors, strict=True):
                if error is None:
                    yield letter
                elif isinstance(error, NodeExists):
                    said = "letter not sent back, its id is another message's queue=%s letter=%s/%s"
                    log.warning(said, self._paths.root, letter.shard, letter.name)
                elif not isinstance(error, OVERTAKEN):
                    raise error
