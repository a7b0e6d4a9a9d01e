"""Records that an operator has asked to let pass: ``leaderq dead bury``.

The znode ``<root>/<career>/burials`` holds JSON: ``asked``, the places of records that hold the
work up and who wants each to pass; ``done``, the newest that were let pass, which ``leaderq
history`` shows. Operators write it under its version; the leader through the term's fence. A leader
looks at it when a record is about to hold the work up, or to fail the term; so nothing is asked
while all goes well.

*Not guaranteed:* that a request is obeyed. The operator's command waits for that, and takes the
request back if it was in vain.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from leaderq.base import clock
from leaderq.errors import (
    BadVersion,
    CorruptRecord,
    LeaderqError,
    NodeExists,
    NoNode,
    ZooKeeperError,
    told,
)
from leaderq.kafka.handling.crash_marks import asked
from leaderq.kafka.record import Record
from leaderq.term import Term
from leaderq.zookeeper import Session, SetData

log = logging.getLogger(__name__)

_KEPT = 10
_ASK_S = 0.2
Burials = Mapping[str, list[dict[str, Any]]]


class RecordBuried(LeaderqError):
    """An operator let the record pass."""

    def __init__(self, who: str, error: BaseException) -> None:
        self.who = who
        super().__init__(f"let pass by {who}; it failed with {told(error)}")


class BurialRequests:
    """Reads the requests of operators, and ends them, for the leader. For the career thread."""

    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self._path = path

    def among(self, records: Sequence[Record]) -> tuple[int, str] | None:
        """Return the index of the first record that an operator wants passed over, and who asked;
        ``None`` if there is none, or ZooKeeper does not answer.
        """
        try:
            asked = {row["at"]: row["by"] for row in read(self._session, self._path)[0]["asked"]}
        except (CorruptRecord, ZooKeeperError) as exc:
            log.warning("requests of operators not known path=%s error=%s", self._path, exc)
            return None
        for index, record in enumerate(records if asked else ()):
            if (who := asked.get(record.place)) is not None:
                return index, who
        return None

    def done(self, term: Term, record: Record) -> None:
        """Note that the record was passed over: its request is moved to the history."""

        def end() -> None:
            found, version = read(self._session, self._path)
            mine = [row for row in found["asked"] if row["at"] == record.place]
            if version is None or not mine:
                return  # done by a try whose answer was lost
            done = [{**row, "term": term.number, "when": clock.calendar_s()} for row in mine]
            data = _encoded(_without(found["asked"], record.place), [*done, *found["done"]])
            term.write([SetData(self._path, data, version)])

        asked(term, end)


def read(session: Session, path: str) -> tuple[Burials, int | None]:
    """Return what the znode ``path`` holds, and its version (``None``: the znode does not exist).
    Raises CorruptRecord if leaderq did not write it.
    """
    try:
        data, stat = session.get(path)
    except NoNode:
        return {"asked": [], "done": []}, None
    remedy = "delete it: only requests to bury records are lost"
    with CorruptRecord.unless("a list of such requests", path, data, remedy):
        found = json.loads(data)
        rows = {name: [dict(row) for row in found[name]] for name in ("asked", "done")}
        rows["asked"] = [{"at": str(row["at"]), "by": str(row["by"])} for row in rows["asked"]]
        return rows, stat.version


def ask(session: Session, path: str, place: str, who: str) -> None:
    """Ask the leader to let the record at ``place`` (topic-partition@offset) pass."""
    _change(session, path, lambda asked: [*_without(asked, place), {"at": place, "by": who}])


def take_back(session: Session, path: str, place: str) -> None:
    _change(session, path, lambda asked: _without(asked, place))


def wait_until_done(session: Session, path: str, place: str, wait_s: float) -> bool:
    """Return whether the leader lets the record at ``place`` pass within ``wait_s`` seconds."""
    until_s = clock.now_s() + wait_s
    while any(row["at"] == place for row in read(session, path)[0]["asked"]):
        if clock.now_s() > until_s:
            return False
        clock.sleep(_ASK_S)
    return True


def _without(asked: list[dict[str, Any]], place: str) -> list[dict[str, Any]]:
    return [row for row in asked if row["at"] != place]


def _change(
    session: Session, path: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    while True:
        found, version = read(session, path)
        data = _encoded(change(found["asked"]), found["done"])
        try:
            if version is None:
                session.create(path, data)
            else:
                session.set(path, data, version=version)
        except (BadVersion, NodeExists, NoNode):
            continue  # somebody else was quicker
        return


def _encoded(asked: list[dict[str, Any]], done: list[dict[str, Any]]) -> bytes:
    return json.dumps({"asked": asked, "done": done[:_KEPT]}).encode()
