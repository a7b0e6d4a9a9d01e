"""A record in one znode that only the leader writes, fenced, at a known version; each write is
known to be stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leaderq.base import clock
from leaderq.errors import BadVersion, ConnectionLost, NodeExists, NoNode
from leaderq.term import Term
from leaderq.zookeeper import Create, Operation, Session, SetData

AGAIN_S = 0.02


class StoredRecord:
    """The znode at ``path``, for one leader; ``version`` is ``None`` while the znode does not
    exist.

    On each failure: if the answer to a write is lost, the znode is read back, which tells whether
    the write was carried out; if not, it is sent again. If somebody else has written meanwhile,
    ``BadVersion``, ``NoNode`` or ``NodeExists`` is raised.
    """

    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self.path = path
        self.version: int | None = None

    def read(self, term: Term) -> bytes | None:
        """Return the data, or ``None`` if the znode does not exist. While ZooKeeper is silent this
        waits, at most until the term is over.
        """
        while True:
            term.check()
            try:
                data, stat = self._session.get(self.path)
            except NoNode:
                self.version = None
                return None
            except ConnectionLost:
                clock.sleep(min(AGAIN_S, term.remaining_s()))
            else:
                self.version = stat.version
                return data

    def store(self, term: Term, data: bytes, ops: Sequence[Operation] = ()) -> list[Any]:
        """Write ``data`` and carry out ``ops``, both or neither; return the results of ``ops``
        (``None`` for each if the answer was lost). Raises what ``ops`` raise, and ``Deposed``.
        """
        expected = self.version
        write: Operation = (
            Create(self.path, data) if expected is None else SetData(self.path, data, expected)
        )
        while True:
            try:
                results = term.write([write, *ops])[1:]
            except ConnectionLost:
                if not self._holds(term, data, expected):
                    self.version = expected
                    continue
            except (BadVersion, NodeExists) as exc:
                # of an attempt whose answer was lost, or by somebody's hand
                if exc.path != self.path or not self._holds(term, data, expected):
                    raise
            else:
                self.version = 0 if expected is None else expected + 1
                return results
            return [None for _ in ops]

    def _holds(self, term: Term, data: bytes, expected: int | None) -> bool:
        """Whether the write of ``data`` at the version ``expected`` was carried out."""
        found = self.read(term)
        return found == data and self.version == (0 if expected is None else expected + 1)
