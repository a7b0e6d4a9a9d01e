"""Sends dead letters back to where they came from.

A letter and the note that it was replayed are **one transaction**: the committed offsets of the
group ``<career>-dead-replay`` on the dead-letter topic are sent along with the records (KIP-98).
So, for readers with ``read_committed``, as every leader is:

* *killed at any moment* and started again: each letter is sent once. Kafka aborts the open
  transaction when the next replay begins, or after 20 s; until then readers of the topics wait;
* *two replays at once*: the later one takes over; the earlier one ends with an error;
* *Kafka is unreachable*: tried again for a minute, then an error. A transaction that was open for
  longer than 20 s meanwhile was dropped by Kafka, which is an error too.

Key, value and headers are sent as they were before the death, with ``leaderq-replayed-from``
(topic-partition@offset of the letter), ``-times`` (how often the record has died) and
``-timestamp`` (its original one). The record's timestamp is the time of the replay: with the old
one, retention could delete it before it is read. The letter stays on its topic.

Records that are not letters of leaderq are passed over, and counted. The note of a partition is an
offset, and, in the *metadata* of the commit, the letters in front of it that a filter left out:
``left out: 103-105,109``. So each letter is replayed once, whatever the filters and their order. An
offset that was reset with Kafka's tools has no metadata: all letters from there on are replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import groupby

from leaderq.base import clock
from leaderq.base.arguments import MAX_S
from leaderq.config import KafkaSecurity
from leaderq.errors import (
    CorruptRecord,
    KafkaError,
    KafkaFenced,
    LeaderqError,
    RequestRefused,
    UnknownTopic,
)
from leaderq.kafka.clients.consumer import BatchLost, KafkaAway, until_answered
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.kafka.clients.producer import Message, ProducerSettings, checked, partition_of
from leaderq.kafka.dead_letters.format import REPLAYED, DeadLetter, read_dead_letter
from leaderq.kafka.dead_letters.topic import MAX_LETTER_BYTES, DeadLetterReader
from leaderq.kafka.record import Partition, Record

log = logging.getLogger(__name__)

MAX_NOTE = 4000
"""Characters; a broker takes 4096 (``offset.metadata.max.bytes``)."""

_NOTED = "left out: "
_MAX_SPAN = 1 << 24
_BATCH = 500
_BATCH_BYTES = 8_000_000
_BATCHES_PER_S = 4
_TRANSACTION_S = 20.0
_PATIENCE_S = 60.0


@dataclass
class ReplayProgress:
    """The letters of a partition that were replayed: all before ``next``, except those ``left``."""

    next: int
    left: set[int] = field(default_factory=set)

    def __contains__(self, offset: int) -> bool:
        return offset < self.next and offset not in self.left

    @property
    def first(self) -> int:
        """The offset of the first letter that may still have to be replayed."""
        return min(self.left, default=self.next)

    def passed(self, offset: int, *, is_left: bool = False) -> None:
        """Note that the letter at ``offset`` was replayed, or needs no replay. ``is_left``: it was
        left out, for a later replay.
        """
        (self.left.add if is_left else self.left.discard)(offset)
        self.next = max(self.next, offset + 1)

    def copy(self) -> ReplayProgress:
        return ReplayProgress(self.next, set(self.left))

    def note(self) -> str:
        """Return the metadata to commit. Raises RequestRefused if it is too long for a broker."""
        note = _NOTED + ",".join(_ranges(self.left)) if self.left else ""
        if len(note) <= MAX_NOTE:
            return note
        raise RequestRefused(
            f"too many letters of one partition were left out to be remembered, {len(self.left)} of"
            " them; replay them first, or all with fewer filters"
        )


def progress_noted(next_: int, note: str) -> ReplayProgress:
    """Return the progress that a committed offset and its metadata tell. Metadata that leaderq did
    not write is ignored; raises CorruptRecord if leaderq's is damaged.
    """
    if not note.startswith(_NOTED):
        return ReplayProgress(next_)
    try:
        return ReplayProgress(next_, set(_from_ranges(note.removeprefix(_NOTED))))
    except ValueError as exc:
        raise CorruptRecord(
            f"the metadata beside the committed offset {next_} is {note[:60]!r}, which leaderq did"
            f" not write ({exc}); replay --from-start, or set the group's offset with"
            " kafka-consumer-groups --reset-offsets"
        ) from exc


def _ranges(offsets: Iterable[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(sorted(offsets)), key=lambda each: each[1] - each[0]):
        run = [offset for _, offset in group]
        yield f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])


def _from_ranges(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = int(first), int(last if dash else first)
        if ends[1] - ends[0] > _MAX_SPAN:
            raise ValueError(f"{part!r} is too wide")
        yield from range(ends[0], ends[1] + 1)


def replay_group(career: str) -> str:
    return f"{career}-dead-replay"


def replay_progress(reader: DeadLetterReader) -> dict[int, ReplayProgress]:
    """Return the group's progress in each partition. If it has committed nothing there, no letter
    counts as replayed. Letters that retention has deleted are not left any more.
    """
    found = {number: ReplayProgress(start) for number, start in reader.starts.items()}
    for number, noted in reader.noted().items():
        known = found[number] = progress_noted(*noted)
        known.left = {offset for offset in known.left if offset >= reader.starts[number]}
    return found


@dataclass(frozen=True)
class DeadLetterFilter:
    """Chooses letters about records of topic ``origin``, whose error contains ``error`` (in any
    case), and that lie at ``places`` (partition, offset). Conditions that are not given hold for
    all.
    """

    error: str | None = None
    origin: str | None = None
    places: frozenset[tuple[int, int]] = frozenset()

    def __contains__(self, letter: DeadLetter) -> bool:
        return (
            (self.origin is None or letter.origin.topic == self.origin)
            and (self.error is None or self.error.casefold() in letter.reason.casefold())
            and (not self.places or (letter.record.partition, letter.record.offset) in self.places)
        )


@dataclass(eq=False)
class DeadLetterReplay:
    """One replay of the letters on ``topic``, for one ``with`` block. ``sent`` and ``foreign`` are
    how many letters it has sent, and how many records it has passed over that are not leaderq's.

    ``rate_per_s``: letters a second at most (0: no limit). ``to``: send the records to this topic
    instead, so that other readers of their own topic do not see them again. A record goes back to
    the partition from which it was read. In another topic, or if that partition is gone, it goes to
    the partition of its key, as Java's and Python's producers choose it.
    """

    address: str
    topic: str
    career: str
    _: KW_ONLY
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    timeout_s: float = 10.0
    selection: DeadLetterFilter = field(default_factory=DeadLetterFilter)
    from_start: bool = False
    rate_per_s: float = 100.0
    to: str | None = None

    def __post_init__(self) -> None:
        self.sent = self.foreign = 0
        self._group = group = replay_group(self.career)
        self._reader = DeadLetterReader(
            self.address, self.topic, group=group, security=self.security, timeout_s=self.timeout_s
        )
        settings = ProducerSettings(
            self.address,
            transactional_id=group,
            client_id=group,
            security=self.security,
            open_timeout_s=self.timeout_s,
            transaction_timeout_s=_TRANSACTION_S,
            max_message_bytes=MAX_LETTER_BYTES,
        )
        self._producer = KafkaPythonProducer(settings)
        self._partitions: dict[str, frozenset[int]] = {}
        self._progress: dict[int, ReplayProgress] = {}
        self._stored: dict[int, ReplayProgress] = {}
        self._began_s = float("inf")  # when the last transaction began

    def __enter__(self) -> DeadLetterReplay:
        self._reader.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._producer.close()
        self._reader.__exit__(None, None, None)

    def preview(self) -> Iterator[tuple[DeadLetter, Message]]:
        """Yield each letter that :meth:`run` would send now, with its message, in the order of
        sending. Sends and commits nothing.
        """
        for each in self._chosen():
            self.sent += 1
            self._stored = self._progress
            yield each
        self._stored = self._progress

    def run(self, wait: Callable[[float], object]) -> None:
        """Send the letters. ``wait(seconds)`` is called to sleep, and may raise to interrupt.

        Raises ``RequestRefused`` if another replay has taken over, or if too much would have to be
        remembered.
        """
        try:
            self._producer.open()
            until_answered(self._require_fenced, _PATIENCE_S)
            self._send_all(wait)
        except KafkaFenced as exc:
            if (open_s := clock.now_s() - self._began_s) > _TRANSACTION_S:
                raise KafkaError(
                    f"Kafka was away, and has dropped what was in hand for {open_s:.0f} s; none of"
                    " it was sent. Run it again, unless another replay goes on from here"
                ) from exc
            raise RequestRefused(
                f"another replay of group {self._group!r} has begun and goes on from here; what"
                " this one had in hand was not sent"
            ) from exc
        except BatchLost as exc:
            raise KafkaError(
                f"{exc}; whether the letters in hand were sent is not known here, but to Kafka: run"
                " it again, it goes on where it was"
            ) from exc

    def remaining(self) -> tuple[int, int]:
        """Return how many letters were left out, and how many offsets were not replayed beside
        them, which may hold fewer letters.
        """
        starts, ends, done = self._reader.starts, self._reader.ends, self._stored
        known = {number: done.get(number) or ReplayProgress(starts[number]) for number in ends}
        unseen = (max(0, end - known[number].next) for number, end in ends.items())
        return sum(len(each.left) for each in known.values()), sum(unseen)

    def _require_fenced(self) -> None:
        if not self._producer.fence(1.0):
            raise KafkaAway("the transaction coordinator has not answered yet")

    def _send_all(self, wait: Callable[[float], object]) -> None:
        paced = max(1, int(self.rate_per_s / _BATCHES_PER_S))
        most = min(_BATCH, paced) if self.rate_per_s else _BATCH
        batch: list[Message] = []
        size, due_s, chosen = 0, clock.now_s(), self._chosen()
        while True:
            _, message = next(chosen, (None, None))
            if message is not None:
                batch.append(message)
                size += message.size
                if len(batch) < most and size < _BATCH_BYTES:
                    continue
            if (left_s := due_s - clock.now_s()) > 0:
                wait(min(left_s, MAX_S))
            due_s = max(due_s, clock.now_s()) + self._send(batch)
            if message is None:
                return
            batch, size = [], 0

    def _chosen(self) -> Iterator[tuple[DeadLetter, Message]]:
        """Yield each letter to send, with its message. ``_progress`` is kept as it will be when the
        letter that was yielded last is sent.
        """
        if self.from_start:
            starts = self._reader.starts.items()
            self._progress = {number: ReplayProgress(start) for number, start in starts}
        else:  # otherwise the first transaction sets all partitions back
            self._progress = replay_progress(self._reader)
            self._stored = {number: known.copy() for number, known in self._progress.items()}
        first = {number: known.first for number, known in self._progress.items()}
        for record in self._reader.read(first):
            letter = self._letter(record, self._progress[record.partition])
            if letter is not None:
                yield letter, self._message(letter)
        for number, end in self._reader.ends.items():
            self._progress[number].next = max(self._progress[number].next, end)

    def _letter(self, record: Record, progress: ReplayProgress) -> DeadLetter | None:
        if record.offset in progress:
            return None
        try:
            letter = read_dead_letter(record)
        except CorruptRecord as exc:
            log.warning("%s", exc)
            self.foreign += 1
            progress.passed(record.offset)
            return None
        is_left = letter not in self.selection
        progress.passed(record.offset, is_left=is_left)
        return None if is_left else letter

    def _message(self, letter: DeadLetter) -> Message:
        said = {"from": letter.place, "times": letter.times, "timestamp": letter.timestamp_ms}
        added = [(REPLAYED + name, str(value).encode()) for name, value in said.items()]
        topic, number = self.to or letter.origin.topic, self._target(letter)
        key, value = letter.record.key, letter.record.value
        return checked(Message(topic, value, key, letter.headers + added, number), MAX_LETTER_BYTES)

    def _target(self, letter: DeadLetter) -> int:
        topic, number = self.to or letter.origin.topic, letter.origin.number
        if topic not in self._partitions:
            self._partitions[topic] = self._reader.partitions_of(topic)
        existing = sorted(self._partitions[topic])
        if not existing:
            where = f"Kafka {self.address!r}"
            if self.to is not None:
                what = f"no topic {topic!r} on {where}; create it, or give another one as --to"
                raise UnknownTopic(what)
            raise UnknownTopic(
                f"the letter {letter.place} is about a record of topic {topic!r}, which is not on"
                f" {where} any more; create it, or leave its letters out with --origin"
            )
        if self.to is None and number in existing:
            return number
        key = letter.record.key
        return existing[
            (number if key is None else partition_of(key, len(existing))) % len(existing)
        ]

    def _send(self, batch: list[Message]) -> float:
        now = {number: known.copy() for number, known in self._progress.items()}
        changed = {number: each for number, each in now.items() if each != self._stored.get(number)}
        if not changed:
            return 0.0
        places = {Partition(self._reader.topic, number): each for number, each in changed.items()}
        offsets = {where: each.next for where, each in places.items()}
        self._producer.notes = {where: each.note() for where, each in places.items()}
        self._began_s = clock.now_s()
        self._producer.begin()
        try:
            for message in batch:
                until_answered(partial(self._producer.produce, message), _PATIENCE_S)
            commit = partial(self._producer.commit, offsets, self._group, 5.0)
            until_answered(commit, _PATIENCE_S)
        except BaseException:
            try:
                self._producer.abort(5.0)
            except LeaderqError as exc:
                # closed next; the broker settles it when the next replay begins, or after a while
                log.debug("open transaction left to the broker error=%s", exc)
            raise
        self._stored.update(changed)
        self.sent += len(batch)
        return len(batch) / self.rate_per_s if self.rate_per_s else 0.0
