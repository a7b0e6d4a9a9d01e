"""Marks of records over which processes have died, to find one that kills whoever handles it.

A crash in C code, the OOM killer or a hang that the guardian ends leaves no error to judge, only a
term that ended uncleanly at the same committed offset as the one before. Nothing is written while
all goes well:

* **first unclean take-over** at an offset: the offset of each partition is noted, with 1 death;
* **second one in a row**: the partition becomes *careful*. Its next ``max_records`` records are
  handled one by one, without workers, each marked durably before;
* **the process dies again**: the mark names the record in hand, and the death is its own. So a
  record that kills costs two processes more than the policy says. One that has taken ``deaths``
  processes is passed over with :class:`~leaderq.kafka.handling.on_error.ProcessDied`;
* **a clean end** of a term: the next leader that finds records forgets all deaths.

The znode ``<root>/<career>/attempts`` holds them as JSON. It is written through the term's fence,
so a zombie cannot blame a record that its successor passed. If it cannot be understood, that is
logged, and it is begun again. While ZooKeeper is silent :meth:`CrashMarks.before` waits, until the
lease ends at most.

*Not guaranteed:* that a record is guilty: it may be in hand by chance whenever processes die. A
record that kills only in the company of others is not found.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from leaderq.base import clock
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    CorruptRecord,
    Deposed,
    NodeExists,
    NoNode,
    SessionClosed,
    SessionExpired,
)
from leaderq.kafka.record import Partition, Record
from leaderq.term import Reason, Term
from leaderq.zookeeper import Create, Session, SetData

log = logging.getLogger(__name__)

CAREFUL_FROM = 2
MAX_POSITIONS, MAX_POSITIONS_BYTES = 10_000, 600_000
MAX_KILLERS = 1_000
_ROW_BYTES = 40  # of a position in JSON, without the name of its topic
_AGAIN_S = 0.05


class RecordPlace(NamedTuple):
    """One record of one partition."""

    topic: str
    number: int
    offset: int

    @property
    def partition(self) -> Partition:
        return Partition(self.topic, self.number)


@dataclass(frozen=True)
class CrashCounts:
    """The known deaths of processes. ``positions``: for each partition, the offset committed at the
    last unclean take-over, and how many take-overs in a row there were at this offset. ``killers``:
    how many processes have certainly died of a record. ``in_hand``: the records being handled, at
    most one of each partition.
    """

    positions: Mapping[Partition, tuple[int, int]] = field(default_factory=dict)
    killers: Mapping[RecordPlace, int] = field(default_factory=dict)
    in_hand: frozenset[RecordPlace] = frozenset()

    def handling(self, place: RecordPlace) -> CrashCounts:
        """Return the same counts with ``place`` in hand, the only record of its partition."""
        others = {each for each in self.in_hand if each.partition != place.partition}
        return replace(self, in_hand=frozenset({place, *others}))


def assess(
    mark: CrashCounts, committed: Mapping[Partition, int], unclean: bool
) -> tuple[CrashCounts, frozenset[Partition]]:
    """Return the counts that a new leader, which begins at ``committed``, must write, and the
    partitions in which it must be careful. ``unclean``: the term before ended uncleanly.
    """
    if not unclean:
        return CrashCounts(), frozenset()
    positions = {}
    for where, offset in committed.items():
        before, deaths = mark.positions.get(where, (offset, 0))
        positions[where] = (offset, deaths + 1 if before == offset else 1)
    # A record in front of the committed offset was passed, whoever has died since.
    killers = {
        place: mark.killers.get(place, 0) + (place in mark.in_hand)
        for place in mark.killers.keys() | mark.in_hand
        if place.offset >= committed.get(place.partition, 0)
    }
    careful = {where for where, (_, deaths) in positions.items() if deaths >= CAREFUL_FROM}
    # Well below the megabyte that a znode may hold: those with the most deaths are kept.
    row_bytes = max((len(where.topic) + _ROW_BYTES for where in positions), default=1)
    count = min(MAX_POSITIONS, MAX_POSITIONS_BYTES // row_bytes)
    most = sorted(positions, key=lambda where: (-positions[where][1], where))[:count]
    worst = sorted(killers, key=lambda place: (-killers[place], place))[:MAX_KILLERS]
    kept = {where: positions[where] for where in most}, {place: killers[place] for place in worst}
    return CrashCounts(*kept), frozenset(careful | {place.partition for place in killers})


def encode(mark: CrashCounts) -> bytes:
    rows = {
        "positions": [[*where, *counts] for where, counts in sorted(mark.positions.items())],
        "killers": [[*place, deaths] for place, deaths in sorted(mark.killers.items())],
        "in_hand": [list(place) for place in sorted(mark.in_hand)],
    }
    return json.dumps(rows, separators=(",", ":")).encode()


def decode(data: bytes, *, path: str) -> CrashCounts:
    """Parse the counts in ``data``; empty data means no deaths. Raises CorruptRecord, which names
    ``path``.
    """
    if not data:
        return CrashCounts()
    remedy = "delete it: a leader writes it again, and only the count of past deaths is lost"
    with CorruptRecord.unless("a mark of attempts", path, data, remedy):
        found = json.loads(data)
        return CrashCounts(
            {Partition(*where): (at, deaths) for *where, at, deaths in _rows(found, "positions")},
            {RecordPlace(*place): deaths for *place, deaths in _rows(found, "killers")},
            frozenset(RecordPlace(*place) for place in _rows(found, "in_hand", 2)),
        )


def _rows(found: Any, name: str, numbers: int = 3) -> Iterable[Any]:
    for row in found.get(name, []):
        if [type(each) for each in row] != [str, *[int] * numbers]:
            raise ValueError(f"{name} has a row {row!r}")
        yield row


T = TypeVar("T")


class CrashMarks:
    """The marks of one career, kept in the znode ``path``, whose parent exists. For the career
    thread only. A partition stays careful until ``max_records`` of its records (the largest batch)
    have passed.
    """

    def __init__(self, session: Session, path: str, *, max_records: int) -> None:
        self._session = session
        self._path = path
        self._max_records = max_records
        self._mark = CrashCounts()
        self._left: dict[Partition, int] = {}
        self._term = ""

    def begin(self, term: Term, committed: Mapping[Partition, int]) -> None:
        """Read the marks of former leaders, and find out where to be careful; once a term.
        ``committed``: where this leader begins. Costs one read, and one write if the term before
        ended uncleanly or there was something to forget.
        """
        if self._term == term.id:
            return
        found = CrashCounts()
        data = asked(term, self._read)
        try:
            found = decode(data, path=self._path)
        except CorruptRecord as exc:
            log.warning("deaths of former leaders not counted error=%s", exc)
        self._mark, careful = assess(found, committed, term.unclean)
        self._left = dict.fromkeys(careful, self._max_records)
        if term.unclean or data:
            self._write(term, encode(self._mark) if term.unclean else b"")
        self._term = term.id
        if careful:
            places = [f"{where}@{committed.get(where, 0)}" for where in sorted(careful)[:5]]
            log.warning(
                "processes died over records, handling them one by one after=%s",
                ", ".join([*places, *["..."][: len(careful) > 5]]),
                extra={"event": "deaths_suspected", "career": term.career, "term": term.number},
            )

    def is_careful(self, partition: Partition) -> bool:
        """Whether the next record of ``partition`` must be marked, and then handled by itself."""
        return partition in self._left

    def before(self, term: Term, record: Record) -> int:
        """Mark durably that ``record`` is about to be handled; returns how many processes have died
        of it.
        """
        place = RecordPlace(record.topic, record.partition, record.offset)
        mark = self._mark.handling(place)
        self._write(term, encode(mark))
        self._mark = mark
        return mark.killers.get(place, 0)

    def after(self, term: Term, record: Record) -> None:
        """Note that the marked ``record`` was committed. Its mark stays, and is ignored, because it
        lies in front of the committed offset.
        """
        where = record.topic_partition
        left = self._left.pop(where, 1) - 1
        if left > 0:
            self._left[where] = left
        else:
            log.info(
                "past the records over which processes died partition=%s",
                where,
                extra={"event": "deaths_passed", "career": term.career, "term": term.number},
            )

    def _read(self) -> bytes:
        try:
            return self._session.get(self._path)[0]
        except NoNode:
            return b""

    def _write(self, term: Term, data: bytes) -> None:
        def put() -> None:
            try:
                term.write([SetData(self._path, data)])
            except NoNode:
                term.write([Create(self._path, data)])

        asked(term, put)


def asked(term: Term, request: Callable[[], T]) -> T:
    """Return the result of ``request()``. It is called again while the connection breaks or
    somebody else writes, which does no harm, until the lease ends.
    """
    while True:
        term.check()
        try:
            return request()
        # NodeExists: made by a try whose answer was lost
        except (ConnectionLost, NodeExists, BadVersion) as exc:
            log.debug("asking ZooKeeper again error=%s", exc)
            clock.sleep(_AGAIN_S)  # term.wait returns at once in a term that is to end
        except (SessionExpired, SessionClosed) as exc:
            raise Deposed(term=term.number, reason=Reason.SESSION) from exc
