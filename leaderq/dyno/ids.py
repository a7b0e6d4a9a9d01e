"""The ids that users give: where each message is, how long its id stays reserved, and conflicts.

``ids/<id>`` holds ``<shard>``, and ``<shard>/<name>`` once that is known, while a message has the
id; ``=<until ms>`` when the message was done and the id is reserved until then. For each reserved
id there is ``windows/<until>-<id>``, whose name tells those who sweep when to delete it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from leaderq.base import chance, clock
from leaderq.base.arguments import instance, require
from leaderq.dyno import transitions
from leaderq.dyno.layout import kept_until_ms, parsed_name, unescaped
from leaderq.dyno.message import Frame, Unique, frame_of, wrong_id
from leaderq.dyno.nodes import QueueNodes, apply_all, within
from leaderq.dyno.shard_view import read_claims
from leaderq.errors import ConnectionLost, LeaderqError, NodeExists, NoNode
from leaderq.zookeeper import Check, Create, Delete, Operation, SetData
from leaderq.zookeeper.paths import name_of
from leaderq.zookeeper.reading import children_of, existing
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


class Push(NamedTuple):
    """A message that is about to be pushed, and the operation that does it."""

    shard: str
    frame: Frame
    create: Create


class Ids:
    """The ids of one queue."""

    def __init__(self, nodes: QueueNodes) -> None:
        self._nodes, self._session, self._paths = nodes, nodes.session, nodes.paths

    def place(self, id: str) -> tuple[str, str] | None:
        """Return the shard and the name of the message with this id; ``None`` if there is none."""
        require(instance("id", id, str))
        shard, _, name = id.rpartition("/")
        if shard and self._is_there(shard, name):
            return shard, name
        try:
            said = self._session.get(self._paths.id(id))[0].decode(errors="replace")
        except NoNode:
            return None
        shard, _, name = said.partition("/")
        if shard.startswith("=") or wrong_id(shard):
            return None
        if self._is_there(shard, name):
            return shard, name
        for name, data in self._nodes.messages(shard):  # its place was never written down
            frame = frame_of(data)
            if frame.id == id and not self._is_free(frame, shard, name):
                self.note_place(frame, shard, name)
                return shard, name
        return None

    def _is_there(self, shard: str, name: str) -> bool:
        return (
            parsed_name(name) is not None
            and self._session.exists(self._paths.shard(shard).message(name)) is not None
        )

    def _is_free(self, frame: Frame, shard: str, name: str) -> bool:
        """Whether the message has been started, and its id may be another's since."""
        if frame.unique is not Unique.STARTED:
            return False
        _, state = read_claims(self._session, self._paths.shard(shard), [name])[name]
        return state.has_started

    def note_place(self, frame: Frame, shard: str, name: str) -> None:
        """Write down where the message with the id of ``frame`` is. This is a hint, without which
        the shard is searched; it is written only while that message has the id.
        """
        paths = self._paths.shard(shard)
        is_its: Operations = (Check(paths.message(name)),)
        if frame.unique is Unique.STARTED:  # from its first claim on the id may be another's
            is_its += transitions.absence(paths.claim(name))
        noted = SetData(self._paths.id(frame.id), f"{shard}/{name}".encode())
        self._session.multi_async([*is_its, noted])

    def resolve(self, one: Push, fence: Sequence[Operation], on_conflict: OnConflict) -> Pushed:
        """Push a message whose id another message may have; whatever becomes of that, no body stays
        that nobody needs. Raises as ``on_conflict`` says.
        """
        (_, frame, create), root = one, self._paths.root
        try:
            for attempt in range(_TRIES):
                clock.sleep(_PAUSE_S * attempt * chance.random())
                try:
                    operations, replaced, body = self._claiming(one, on_conflict)
                except NoNode:  # it changes hands at this moment
                    continue
                group = (*operations, *fence, create)
                ((results, error),) = outcomes(self._nodes.writer(), [group], root)
                if error is None:
                    self._nodes.bodies.drop([body])
                    if results is None:  # the answer was lost
                        return Pushed(frame.id, True, "", replaced)
                    name = name_of(results[-1])
                    self.note_place(frame, one.shard, name)
                    return Pushed(frame.id, True, f"{one.shard}/{name}", replaced)
                if not (isinstance(error, OVERTAKEN) and within(error, root)):
                    raise error
        except LeaderqError as exc:
            if not isinstance(exc, ConnectionLost):  # else it may be there
                self._nodes.bodies.drop([frame.body])
            if isinstance(exc, Duplicate) and on_conflict is OnConflict.DROP:
                return Pushed(frame.id, False, exc.surviving)
            raise
        raise ConnectionLost(f"the id {frame.id!r} changes hands too often queue={root}")

    def _claiming(self, one: Push, on_conflict: OnConflict) -> tuple[Operations, str, str | None]:
        """Return the operations that give the id to a new message; and of the message that they
        remove, if any, the place and the body.
        """
        id, shard, now_ms = one.frame.id, one.shard, self._nodes.now_ms()
        path = self._paths.id(id)
        try:
            data, stat = self._session.get(path)
        except NoNode:
            return (Create(path, shard.encode()),), "", None
        mine = SetData(path, shard.encode(), stat.version)
        if (place := self.place(id)) is not None:
            if on_conflict is not OnConflict.REPLACE:
                raise Duplicate(id, "/".join(place))
            former, body = self._taking(id, *place)
            return (*former, mine), "/".join(place), body
        until_ms = kept_until_ms(data)
        if until_ms is not None and until_ms > now_ms:
            raise Duplicate(id, "")
        if until_ms is not None and self._session.exists(
            window := self._paths.window(until_ms, id)
        ):
            return (Delete(window), mine), "", None
        # Its message was deleted by hand, or is done by now and the id perhaps another's again.
        again = self._session.exists(path)
        if again is None or again.czxid != stat.czxid:
            raise NoNode("the id changes hands", path=path)
        return (mine,), "", None

    def _taking(self, id: str, shard: str, name: str) -> tuple[Operations, str | None]:
        """Return the operations that remove the message that has this id but keep its id, and the
        message's body.
        """
        paths = self._paths.shard(shard)
        choice, _ = read_claims(self._session, paths, [name])[name]
        if choice.is_held:
            raise Duplicate(id, f"{shard}/{name}")
        frame = frame_of(self._session.get(paths.message(name))[0])
        return transitions.removal(paths, *choice), frame.body

    def sweep_windows(self, now_ms: int, writer: SequencedWriter) -> None:
        names = sorted(children_of(self._session, self._paths.windows))
        over = [name for name in names if name[:13].isdecimal() and int(name[:13]) <= now_ms]
        over = [name for name in over if name[13:14] == "-" and unescaped(name[14:]) is not None]
        paths = {name: f"{self._paths.ids}/{name[14:]}" for name in over[:_AT_A_TIME]}
        found = existing(self._session, [*paths.values()])
        groups: list[Operations] = []
        for name, path in paths.items():
            gone: Operations = (Delete(f"{self._paths.windows}/{name}"),)
            if path in found and found[path][0] == b"=%d" % int(name[:13]):
                gone = (*gone, Delete(path, found[path][1].version))
            groups.append(gone)
        apply_all(writer, groups, self._paths.root)
