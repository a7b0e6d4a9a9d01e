"""The dead letters of a Dyno queue: look, send back, drop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from leaderq.dyno.layout import group_of, name_prefix, parsed_name
from leaderq.dyno.message import Frame, frame_of, is_wanted, wrong_id
from leaderq.dyno.nodes import QueueNodes, apply_all, shard_sizes
from leaderq.dyno.transitions import DeadMessage
from leaderq.engine.dead_letters import DeadLetters
from leaderq.errors import CorruptItem, LeaderqError
from leaderq.zookeeper import Create, Delete
from leaderq.zookeeper.reading import SizedReader, children_of
from leaderq.zookeeper.writing.groups import Operations, batched

_TOGETHER = 50
"""Letters that are written at a time; each may have a megabyte."""
Wanted = Callable[[DeadMessage], bool]


class DynoDeadLetters(DeadLetters[DeadMessage]):
    """Get one from :attr:`~leaderq.dyno.DynoQueue.dead_letters`. What is sent back has its id,
    payload, headers, group and priority, and does not expire.
    """

    KIND = DeadMessage

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
                if is_wanted(letter, wanted):
                    yield letter

    def count(self) -> int:
        return sum(one["dead"] for one in shard_sizes(self._nodes).values())

    def _path(self, letter: DeadMessage) -> str:
        return self._paths.shard(letter.shard).dead_letter(letter.name)

    def _gone(self, letter: DeadMessage) -> Operations:
        return (Delete(self._path(letter)),)

    def _back(self, letter: DeadMessage) -> Operations:
        paths, priority = self._paths.shard(letter.shard), int(letter.name[:2])
        gone, now_ms = self._gone(letter), self._nodes.now_ms()
        try:
            frame = letter.frame
        except CorruptItem:  # unchanged: whoever sends it back has repaired the code that reads it
            path = paths.message(name_prefix(priority, now_ms))
            return *gone, Create(path, letter.data, sequential=True)
        id = self._id(letter, frame)
        prefix = name_prefix(priority, now_ms, group_of(frame.group))
        message = Create(
            paths.message(prefix), frame._replace(id=id, expires_ms=0).packed(), sequential=True
        )
        ids = (Create(self._paths.id(id), letter.shard.encode()),) if id else ()
        return *gone, message, *ids

    def _id(self, letter: DeadMessage, frame: Frame) -> str:
        """The message's own id or, if it had none, its place, if a place can be an id; ``""``
        otherwise.
        """
        place = f"{letter.shard}/{letter.name}"
        return frame.id or ("" if wrong_id(place) else place)

    def _dropped(self, letter: DeadMessage) -> None:
        self._nodes.bodies.drop([frame_of(letter.data).body])

    def _written(self, groups: Iterable[Operations]) -> Iterator[LeaderqError | None]:
        for some in batched(groups, _TOGETHER):
            yield from apply_all(self._nodes.writer(), some, self._paths.root)
