from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from leaderq.admin.queue_states import QueueStates
from leaderq.errors import NoNode, NoPermission
from leaderq.zookeeper import GetChildren, Read, Stat

FOREIGN = "x" * 220


class Znodes:
    """A session that reads the znodes ``tree``: the children of each path; ``None``: refused."""

    tree: ClassVar[dict[str, list[str] | None]] = {
        "/": ["jobs", "secret"],
        "/jobs": ["q"],
        "/jobs/q": ["shards"],
        "/jobs/q/shards": ["a", FOREIGN],
        "/jobs/q/shards/a/messages": ["1", "2"],
        f"/jobs/q/shards/{FOREIGN}/messages": ["3"],
        "/secret": None,
    }

    def _answer(self, read: Read) -> Any:
        if read.path not in self.tree:
            return NoNode("there is none", path=read.path)
        if (names := self.tree[read.path]) is None:
            return NoPermission("not allowed", path=read.path)
        listed = isinstance(read, GetChildren)
        return names if listed else (b"", Stat(*[0] * 9, num_children=len(names), pzxid=0))

    def multi_read(self, reads: Sequence[Read]) -> list[Any]:
        return list(map(self._answer, reads))

    def children(self, path: str, timeout_s: float | None = None) -> list[str]:
        if isinstance(found := self._answer(GetChildren(path)), Exception):
            raise found
        return list(found)


def test_what_is_refused_below_queues_or_was_made_by_others_hides_no_other_queue() -> None:
    session: Any = Znodes()
    queues, _ = QueueStates(session, ["/jobs/", "/secret/", "/absent/"]).read(())
    shown = [(one.path, one.is_dyno, one.depth) for one in queues]
    assert shown == [("/jobs/q", True, 3), ("/secret", False, 0)]
    assert queues[1].listing is not None
    assert queues[1].listing.problem == "not allowed"
