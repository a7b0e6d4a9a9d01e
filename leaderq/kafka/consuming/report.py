"""How far a leader is behind, how fast it works, and when it will have caught up.

Lag and rates count *offsets*, not records: markers, aborted records and what compaction took away
count too, because nobody knows how many of them lie ahead. The end is the log's, as Kafka's own
tools show it; how much an open transaction holds back in front of the end is told separately.

Nothing decides by these figures: what is read is ``ConsumerClient.positions``.

The leader writes its report every few seconds to ``<root>/<career>/progress``, as JSON, through the
term's fence. It is for people and tools, with one exception: a new leader compares the ids of its
topics with it, and stops where it tells of progress for which the group has no offset any more.
"""

from __future__ import annotations

import json
import logging
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from leaderq.base import clock
from leaderq.errors import (
    ConnectionLost,
    CorruptRecord,
    Deposed,
    LeaderqError,
    NoNode,
    SessionClosed,
    SessionExpired,
    ZooKeeperError,
)
from leaderq.events import DrainProgress, DrainStalled, EventBus, RecordDeadLettered, RecordSkipped
from leaderq.kafka.clients.consumer import Offsets
from leaderq.kafka.record import Partition, Record
from leaderq.term import Term
from leaderq.threads import SerialExecutor, SubmittedWork
from leaderq.zookeeper import Create, Session, SetData

log = logging.getLogger(__name__)

SMOOTHED_OVER_S = 30.0
_LEAST_SPAN_S = 0.001  # divided by less, a rate may be infinite, which no report can hold


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The next offset to handle (``position``), the offset after the last record (``end``), and
    their difference. ``blocked_by_transaction`` of these offsets cannot be read, because a
    transaction stays open.
    """

    position: int
    end: int
    lag: int
    blocked_by_transaction: int = 0


@dataclass(frozen=True, slots=True)
class DrainReport:
    """A leader's report on its draining, ``at`` one moment (seconds since the epoch).

    ``rate_per_s`` is handled and committed, ``arriving_per_s`` added, both over the last half
    minute (``None`` after a first look); ``catch_up_s`` is when the lag will be 0 if both stay so,
    ``None`` when that will not come or is not known. ``dead_letters`` is the topic for them;
    ``skipped`` and ``set_aside`` (as dead letters) count since this process started. ``held_up``
    names the records that are tried again and again, and their error. ``lease_left_s`` of the term
    was left; ``in_hand``: records that were handed to the career and are not committed.
    """

    term: int = 0
    at: float = 0.0
    group: str | None = None
    partitions: Mapping[str, PartitionLag] = field(default_factory=dict)
    rate_per_s: float | None = None
    arriving_per_s: float | None = None
    catch_up_s: float | None = None
    dead_letters: str | None = None
    skipped: int = 0
    set_aside: int = 0
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    held_up: str | None = None
    lease_left_s: float | None = None
    in_hand: int | None = None

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.partitions.values())

    @property
    def blocked_by_transaction(self) -> int:
        return sum(each.blocked_by_transaction for each in self.partitions.values())


_SET_ASIDE = "buried"  # in znodes


def encode(report: DrainReport) -> bytes:
    row = asdict(report)
    row[_SET_ASIDE] = row.pop("set_aside")
    return json.dumps(row, separators=(",", ":")).encode()


def decode(data: bytes, *, path: str) -> DrainReport:
    """Parse a report that any version has written. Raises CorruptRecord, which names ``path``."""
    remedy = "delete it: a leader that drains writes it again within seconds"
    with CorruptRecord.unless("a report of a leader", path, data, remedy):
        row = json.loads(data)
        found = _known(DrainReport, {**row, "set_aside": row.get(_SET_ASIDE, 0)})
        rows = found.pop("partitions", {}).items()
        lags = {name: PartitionLag(**_known(PartitionLag, row)) for name, row in rows}
        report = DrainReport(**found, partitions=lags)
        _check_types(report)
        return report


def _known(kind: type[Any], found: Any) -> dict[str, Any]:
    names = [each.name for each in fields(kind)]
    return {name: value for name, value in found.items() if name in names}


def _check_types(report: DrainReport) -> None:
    counts: list[Any] = [report.term, report.skipped, report.set_aside, report.in_hand or 0]
    counts += [number for each in report.partitions.values() for number in astuple(each)]
    rates = report.rate_per_s, report.arriving_per_s, report.catch_up_s, report.lease_left_s
    numbers: list[Any] = [report.at, *(each for each in rates if each is not None)]
    named = report.group, report.dead_letters, report.held_up
    texts = [*report.topic_ids.values(), *(each for each in named if each is not None)]
    if any(not isinstance(text, str) for text in texts):
        raise TypeError("a name or a sentence is not a text")
    if any(type(number) is not int for number in counts):
        raise TypeError("a count is not a whole number")
    if any(not isinstance(each, int | float) or not math.isfinite(each) for each in numbers):
        raise TypeError("a time or a rate is not a number")


class _Look(NamedTuple):
    at_s: float
    handled: int  # since the first look, over all partitions
    arrived: int


class LagEstimator:
    """Lag and rates of one term, from looks at offsets every few seconds (pure).

    For a partition whose offset went back, or that is seen for the first time, nothing is counted
    at that look. A partition that is missing counts as unchanged. *Not guaranteed:* an offset that
    somebody set *forward* counts as handled.
    """

    def __init__(self) -> None:
        self._committed: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._looks: deque[_Look] = deque()

    def see(self, now_s: float, committed: Offsets, ends: Offsets) -> None:
        """Note the committed offsets and the ends of the partitions; ``now_s`` must not go back."""
        last = self._looks[-1] if self._looks else _Look(now_s, 0, 0)
        handled = last.handled + _grown(self._committed, committed)
        self._looks.append(_Look(now_s, handled, last.arrived + _grown(self._ends, ends)))
        # One look older than the span stays: a gap between looks is averaged over.
        while len(self._looks) > 2 and self._looks[1].at_s <= now_s - SMOOTHED_OVER_S:
            self._looks.popleft()
        self._committed.update(committed)
        self._ends.update(ends)

    def report(self, blocked: Offsets = MappingProxyType({}), **said: Any) -> DrainReport:
        both = sorted(self._committed.keys() & self._ends.keys())
        rows = {}
        for where in both:
            position, end = self._committed[where], self._ends[where]
            # Perhaps the end was asked for before the latest commit.
            lag, held_back = max(0, end - position), blocked.get(where, 0)
            rows[str(where)] = PartitionLag(position, max(end, position), lag, held_back)
        rate, arriving = self._rates()
        report = DrainReport(**said, partitions=rows, rate_per_s=rate, arriving_per_s=arriving)
        gain = 0.0 if rate is None or arriving is None else rate - arriving
        if report.lag and gain <= 0:
            return report  # it will never catch up, or nobody knows
        return replace(report, catch_up_s=round(report.lag / gain, 1) if report.lag else 0.0)

    def _rates(self) -> tuple[float | None, float | None]:
        if not self._looks:
            return None, None
        first, last = self._looks[0], self._looks[-1]
        if (span_s := last.at_s - first.at_s) < _LEAST_SPAN_S:
            return None, None
        handled, arrived = last.handled - first.handled, last.arrived - first.arrived
        return round(handled / span_s, 3), round(arrived / span_s, 3)


def _grown(before: Offsets, after: Offsets) -> int:
    return sum(max(0, offset - before[where]) for where, offset in after.items() if where in before)


@dataclass(eq=False)
class ProgressReports:
    """Writes the reports of one career to the znode ``path``, whose parent exists, through all
    terms. Writing never raises and never blocks: while a report is being written, later ones are
    dropped.
    """

    session: Session
    events: EventBus
    path: str
    career: str
    candidate: str
    group: str
    dead_letters: str | None

    def __post_init__(self) -> None:
        self._writer = SerialExecutor(f"leaderq-report-{self.career}")
        self._writing: SubmittedWork | None = None
        self._has_warned = False
        self._estimator, self._term = LagEstimator(), 0
        self._rebuilds = 0
        self._said: dict[str, Any] = {"group": self.group, "dead_letters": self.dead_letters}
        self._said |= {"skipped": 0, "set_aside": 0}

    def former(self) -> DrainReport:
        """Return the last report, without its positions if these are of another group. Returns an
        empty report if there is none, or it cannot be read.
        """
        try:
            data, _ = self.session.get(self.path)
            report = decode(data, path=self.path)
        except NoNode:
            return DrainReport()
        except (CorruptRecord, ZooKeeperError) as exc:
            log.warning("topics and offsets not compared with the stored ones error=%s", exc)
            return DrainReport()
        return report if report.group == self.group else replace(report, partitions={})

    def tell(
        self,
        term: Term,
        now_s: float,
        committed: Offsets,
        ends: Offsets,
        blocked: Offsets,
        topic_ids: Mapping[str, str],
        in_hand: int,
    ) -> None:
        if term.number != self._term:
            self._term, self._estimator = term.number, LagEstimator()
        self._estimator.see(now_s, committed, ends)
        report = self._estimator.report(
            blocked,
            term=term.number,
            at=clock.calendar_s(),
            topic_ids=dict(topic_ids),
            lease_left_s=round(term.remaining_s(), 3),
            in_hand=in_hand,
            **self._said,
        )
        self.publish(term, report)
        lags = {name: each.lag for name, each in report.partitions.items()}
        told = term.number, report.lag, report.rate_per_s, report.arriving_per_s, lags
        self.events.publish(DrainProgress(self.career, self.candidate, *told))

    def stalled(self, where: Partition, position: int, end: int) -> None:
        self._rebuilds += 1
        found = str(where), position, end, self._rebuilds
        self.events.publish(DrainStalled(self.career, self.candidate, *found))

    def publish(self, term: Term, report: DrainReport) -> None:
        if self._writing is None or self._writing.done(0.0):
            self._writing = self._writer.submit(partial(self._write, term, encode(report)))

    def _write(self, term: Term, data: bytes) -> None:
        try:
            try:
                term.write([SetData(self.path, data)])
            except NoNode:
                term.write([Create(self.path, data)])
        except (Deposed, ConnectionLost, SessionClosed, SessionExpired) as exc:
            log.debug("report not written term=%d error=%s", term.number, exc)
        except LeaderqError as exc:
            level = logging.DEBUG if self._has_warned else logging.WARNING
            log.log(level, "leaderq status cannot show this consumer error=%s", exc)
            self._has_warned = True

    def close(self) -> None:
        self._writer.close()

    def held_up(self, why: str | None) -> None:
        """Note why the work is held up; ``None``: it is not any more."""
        self._said["held_up"] = why

    def skipped(self, record: Record, error: BaseException, attempts: int) -> None:
        self._said["skipped"] += 1
        self.events.publish(RecordSkipped(*self._place(record), error, attempts))

    def dead_lettered(
        self, record: Record, error: BaseException, attempts: int, topic: str
    ) -> None:
        self._said["set_aside"] += 1
        self.events.publish(RecordDeadLettered(*self._place(record), error, attempts, topic))

    def _place(self, record: Record) -> tuple[str, str, str, int]:
        return self.career, self.candidate, str(record.topic_partition), record.offset
