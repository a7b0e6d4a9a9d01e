"""The dead letters of a Dyno queue: look, send back, drop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from leaderq.base import clock
from leaderq.base.arguments import is_number, require, unless
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
        second at most; returns their number (also if they only would be sent). One whose id is that
        of another message by now stays, and is logged.
        """
        is_rate = per_s is None or (is_number(per_s) and per_s > 0)
        require(unless(is_rate, f"per_s={per_s!r}: give more than 0 letters a second"))
        count = 0
        for letters in batched(self._chosen(wanted), _TOGETHER if per_s is None else 1):
            if dry_run:
                count += sum(self._is_id_free(one) for one in letters)
                continue
            count += len(self._write(letters, [self._back(one) for one in letters]))
            if per_s is not None:
                clock.sleep(1 / per_s)
        return count

    def purge(self, wanted: Chosen | None = None) -> int:
        """Delete letters, as :meth:`redrive`; returns how many were."""
        count = 0
        for letters in batched(self._chosen(wanted), _TOGETHER):
            paths = [self._paths.shard(one.shard).dead_letter(one.name) for one in letters]
            gone = self._write(letters, [(Delete(path),) for path in paths])
            self._nodes.bodies.drop(frame_of(one.data).body for one in gone)
            count += len(gone)
        return count

    def _chosen(self, wanted: Chosen | None) -> Iterable[DeadMessage]:
        return self.browse(wanted) if wanted is None or callable(wanted) else wanted

    def _back(self, letter: DeadMessage) -> Operations:
        paths, priority = self._paths.shard(letter.shard), int(letter.name[:2])
        gone, now_ms = Delete(paths.dead_letter(letter.name)), self._nodes.now_ms()
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
        """Its own, or that which it had without one, if that can be one."""
        place = f"{letter.shard}/{letter.name}"
        return frame.id or ("" if wrong_id(place) else place)

    def _is_id_free(self, letter: DeadMessage) -> bool:
        id = frame_of(letter.data).id
        return not id or self._nodes.session.exists(self._paths.id(id)) is None

    def _write(
        self, letters: Sequence[DeadMessage], groups: Sequence[Operations]
    ) -> list[DeadMessage]:
        """Those of these that were written; others were taken by somebody who was faster, or have
        an id that is another's."""
        done: list[DeadMessage] = []
        errors = apply_all(self._nodes.writer(), groups, self._paths.root)
        for letter, error in zip(letters, errors, strict=True):
            if error is None:
                done.append(letter)
            elif isinstance(error, NodeExists):
                said = "letter not sent back, its id is another message's queue=%s letter=%s/%s"
                log.warning(said, self._paths.root, letter.shard, letter.name)
            elif not isinstance(error, OVERTAKEN):
                raise error
        return done
