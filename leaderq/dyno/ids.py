"""The ids that users give: where each message is, how long its id stays reserved, and conflicts.

``ids/<id>`` holds ``<shard>``, and ``<shard>/<name>`` once that is known, while a message has the
id; ``=<until ms>`` when the message was done and the id is reserved until then. For each reserved
id there is ``windows/<until>-<id>``, whose name tells those who sweep when to delete it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from leaderq.base import chance, clock
from leaderq.dyno import transitions
from leaderq.dyno.layout import kept_until_ms, parsed_name
from leaderq.dyno.message import Frame, frame_of
from leaderq.dyno.nodes import QueueNodes, apply_all
from leaderq.dyno.shard_view import read_claims
from leaderq.errors import ConnectionLost, NodeExists, NoNode
from leaderq.zookeeper import Check, Create, Delete, GetData, SetData
from leaderq.zookeeper.paths import name_of
from leaderq.zookeeper.reading import children_of
from leaderq.zookeeper.writing import SequencedWriter
from leaderq.zookeeper.writing.groups import Operations
from leaderq.zookeeper.writing.writer import OVERTAKEN, outcomes

_TRIES, _PAUSE_S = 40, 0.005
_AT_A_TIME = 250


class OnConflict(Enum):
    """What to do with a message whose id another one has."""

    RAISE = "raise"
    """:class:`Duplicate` is raised."""
    DROP = "drop"
    """It is not pushed."""
    REPLACE = "replace"
    """It takes the place of the other, if nobody has that in flight; else as :attr:`RAISE`."""


class Duplicate(NodeExists):
    """Nothing was pushed: another message has the id. ``surviving`` is its place
    (``<shard>/<name>``); empty if that message was done not long ago.
    """

    def __init__(self, id: str, surviving: str) -> None:
        self.id = id
        self.surviving = surviving
        super().__init__(
            f"the id {id!r} is that of {surviving or 'a message that was done not long ago'}"
        )


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push. ``surviving``: the place of the message that has the id now
    (``<shard>/<name>``); empty if that message is done, or not known. ``replaced``: the place of
    the message that was replaced.
    """

    id: str
    is_new: bool
    surviving: str = ""
    replaced: str = ""


class Ids:
    """The ids of one queue."""

    def __init__(self, nodes: QueueNodes) -> None:
        self._nodes, self._session, self._paths = nodes, nodes.session, nodes.paths

    def place(self, id: str) -> tuple[str, str] | None:
        """Return the shard and the name of the message with this id; ``None`` if there is none."""
        shard, _, name = id.rpartition("/")
        if shard and self._is_there(shard, name):
            return shard, name
        try:
            said = self._session.get(self._paths.id(id))[0].decode(errors="replace")
        except NoNode:
            return None
        shard, _, name = said.partition("/")
        if self._is_there(shard, name):
            return shard, name
        if not shard or shard.startswith("="):
            return None
        for name, data in self._nodes.messages(shard):  # its place was never written down
            if frame_of(data).id == id:
                self.note_place(id, shard, name)
                return shard, name
        return None

    def _is_there(self, shard: str, name: str) -> bool:
        return (
            parsed_name(name) is not None
            and self._session.exists(self._paths.shard(shard).message(name)) is not None
        )

    def note_place(self, id: str, shard: str, name: str) -> None:
        """Write down the place of the message with this id. This is a hint, without which the shard
        is searched; it is written only while the message exists.
        """
        here = Check(self._paths.shard(shard).message(name))
        self._session.multi_async([here, SetData(self._paths.id(id), f"{shard}/{name}".encode())])

    def resolve(
        self, id: str, push: Operations, shard: str, on_conflict: OnConflict
    ) -> tuple[Pushed, Frame | None]:
        """Push a message whose id another message may have, and return the result and the message
        that was replaced, if any. ``push``: the operations that push it; the last one creates it.
        Raises as ``on_conflict`` says.
        """
        for attempt in range(_TRIES):
            clock.sleep(_PAUSE_S * attempt * chance.random())
            try:
                operations, former = self._claiming(
                    id, shard, on_conflict is OnConflict.REPLACE, self._nodes.now_ms()
                )
            except Duplicate as taken:
                if on_conflict is OnConflict.DROP:
                    return Pushed(id, False, taken.surviving), None
                raise
            except NoNode:  # it changes hands at this moment
                continue
            ((results, error),) = outcomes(
                self._nodes.writer(), [(*operations, *push)], self._paths.root
            )
            if error is None:
                place = "" if results is None else f"{shard}/{name_of(results[-1])}"
                if results is not None:
                    self.note_place(id, shard, name_of(results[-1]))
                replaced, frame = former or ("", None)
                return Pushed(id, True, place, replaced), frame
            if not isinstance(error, OVERTAKEN):
                raise error
        raise ConnectionLost(f"the id {id!r} changes hands too often queue={self._paths.root}")

    def _claiming(
        self, id: str, shard: str, may_take: bool, now_ms: int
    ) -> tuple[Operations, tuple[str, Frame] | None]:
        """Return the operations that give this id to a new message, and the message that they
        remove, if any.
        """
        path = self._paths.id(id)
        try:
            data, stat = self._session.get(path)
        except NoNode:
            return (Create(path, shard.encode()),), None
        mine = SetData(path, shard.encode(), stat.version)
        place = self.place(id)
        if place is not None:
            if not may_take:
                raise Duplicate(id, "/".join(place))
            frame, removal = self._taking(id, *place)
            return (*removal, mine), ("/".join(place), frame)
        until_ms = kept_until_ms(data)
        if until_ms is not None and until_ms > now_ms:
            raise Duplicate(id, "")
        if until_ms is not None and self._session.exists(
            window := self._paths.window(until_ms, id)
        ):
            return (Delete(window), mine), None
        # Its message was deleted by hand, or is done by now and the id perhaps another's again.
        again = self._session.exists(path)
        if again is None or again.czxid != stat.czxid:
            raise NoNode("the id changes hands", path=path)
        return (mine,), None

    def _taking(self, id: str, shard: str, name: str) -> tuple[Frame, Operations]:
        """Return the message that has this id, and the operations that remove it but keep
        its id.
        """
        paths = self._paths.shard(shard)
        claims = read_claims(self._session, paths, [name])
        resting = claims[0].resting if claims else None
        if claims and resting is None:
            raise Duplicate(id, f"{shard}/{name}")
        version = claims[0].version if claims else None
        frame = frame_of(self._session.get(paths.message(name))[0])
        return frame, transitions.removal(paths, name, version, resting)

    def sweep_windows(self, now_ms: int, writer: SequencedWriter) -> None:
        names = sorted(children_of(self._session, self._paths.windows))
        over = [name for name in names if name[:13].isdecimal() and int(name[:13]) <= now_ms]
        paths = {name: f"{self._paths.ids}/{name[14:]}" for name in over[:_AT_A_TIME]}
        answers = self._session.multi_read([GetData(path) for path in paths.values()])
        groups: list[Operations] = []
        for (name, path), answer in zip(paths.items(), answers, strict=True):
            gone: Operations = (Delete(f"{self._paths.windows}/{name}"),)
            if isinstance(answer, tuple) and answer[0] == b"=%d" % int(name[:13]):
                gone = (*gone, Delete(path, answer[1].version))
            groups.append(gone)
        apply_all(writer, groups, self._paths.root)
