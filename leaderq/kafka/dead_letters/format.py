"""Dead letters: records that could not be handled, set aside on a topic of their own with headers
that say why.

Pure: what a letter looks like, and how one is read. A letter keeps the record's key, value and
headers byte for byte (none, if its client cannot read them, B42), and adds, each header's value
being text in UTF-8:

========================== =========================================================================
``leaderq-dead-topic``     where the record was read: topic,
``leaderq-dead-partition`` partition,
``leaderq-dead-offset``    and offset. The three name a record for ever: of letters that
                           agree in them, one is enough
``leaderq-dead-timestamp`` the record's own timestamp, milliseconds since the epoch (-1: unknown)
``leaderq-dead-error``     the error's class, qualified: ``billing.UnknownAccount``
``leaderq-dead-text``      the error's text and its causes', at most 1000 bytes
``leaderq-dead-where``     the line of code that raised, if any
``leaderq-dead-attempts``  how often the record was handled in vain
``leaderq-dead-term``      the number of the term in which it was set aside
``leaderq-dead-at``        when that was, ISO 8601 in UTC
``leaderq-dead-career``    by which career
``leaderq-dead-times``     how often this record has become a dead letter: 2 after one
                           replay in vain
========================== =========================================================================

A letter's own timestamp is the time of death, not the record's: with the record's, the topic's
retention could delete a letter about an old record as soon as it is written. Headers of an earlier
death (the record is a letter, or was replayed) are replaced and counted, so they do not pile up.

A record close to the broker's ``max.message.bytes`` may become too large with these headers.
:func:`shortened` returns the letter without the headers that can be spared; if even that is
refused, the work stops as with ``on_error="raise"``.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeVar

from leaderq.errors import CorruptRecord, KafkaError, leaves
from leaderq.kafka.clients.producer import Message
from leaderq.kafka.record import Partition, Record, is_topic_name
from leaderq.observability import tracing

PREFIX = "leaderq-dead-"
REPLAYED = "leaderq-replayed-"
"""Prefix of the headers that a replay adds: ``from`` (place of the letter), ``times``."""

MAX_TEXT_BYTES = 1000
_MAX_NAME_BYTES = 250
_SPARED = ("text", "where", "career", "at", "timestamp")

_WHOLE = re.compile(r"-?[0-9]{1,19}")

Headers = Sequence[tuple[str, bytes]]
N = TypeVar("N", int, None)


def new_dead_letter(
    record: Record, error: BaseException, attempts: int, term: int, career: str, at_ms: int
) -> Message:
    """Return the letter about the raw ``record``, for a topic to be named; ``at_ms``: milliseconds
    since the epoch. No ``error`` makes this raise. Of a group of errors only the first is told.
    """
    carried = tracing.carried_by(error)
    error = leaves(error)[0]
    try:
        headers = record.headers
    except KafkaError:  # its client cannot read them
        headers = ()
    said = {
        **carried,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "error": _cut(_name(error), _MAX_NAME_BYTES),
        "text": _cut(": ".join(_causes(error)), MAX_TEXT_BYTES),
        "where": _cut(_where(error), _MAX_NAME_BYTES),
        "attempts": attempts,
        "term": term,
        "at": datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(timespec="milliseconds"),
        "career": career,
        "times": deaths(headers) + 1,
    }
    added = [(PREFIX + name, str(value).encode()) for name, value in said.items() if value != ""]
    return Message("", record.value, record.key, own_headers(headers) + added, timestamp_ms=at_ms)


def shortened(letter: Message) -> Message:
    """Return the letter without the error's text and other headers that a replay does not need."""
    spared = {PREFIX + name for name in _SPARED}
    return letter._replace(headers=[header for header in letter.headers if header[0] not in spared])


@dataclass(frozen=True)
class DeadLetter:
    """A letter that was read: ``record`` is the letter itself; ``headers`` are those of the record
    that it is about.

    Fields that the letter lacks are ``None`` or empty. Times are milliseconds since the epoch.
    """

    record: Record
    origin: Partition
    offset: int
    timestamp_ms: int
    error: str
    text: str
    where: str
    attempts: int | None
    term: int | None
    career: str | None
    at_ms: int
    times: int
    headers: list[tuple[str, bytes]]

    @property
    def place(self) -> str:
        return self.record.place

    @property
    def reason(self) -> str:
        return ": ".join(" ".join(part.split()) for part in (self.error, self.text) if part)


def read_dead_letter(record: Record) -> DeadLetter:
    """Parse a record of the dead-letter topic. Raises CorruptRecord if the letter does not name the
    record that it is about; any other header that is missing or damaged leaves its field empty.
    """
    said = {name[len(PREFIX) :]: value for name, value in record.headers if name.startswith(PREFIX)}
    place = f"offset {record.offset} of {record.topic_partition}"
    topic = _text(said.get("topic"))
    partition, offset = _number(said.get("partition"), None), _number(said.get("offset"), None)
    if not is_topic_name(topic) or partition is None or offset is None:
        raise CorruptRecord(
            f"the record at {place} is not a dead letter of leaderq: its headers {PREFIX}topic,"
            " -partition and -offset do not name the record it is about; nothing is done with it"
        )
    return DeadLetter(
        record=record,
        origin=Partition(topic, partition),
        offset=offset,
        timestamp_ms=_number(said.get("timestamp"), -1),
        error=_text(said.get("error")),
        text=_text(said.get("text")),
        where=_text(said.get("where")),
        attempts=_number(said.get("attempts"), None),
        term=_number(said.get("term"), None),
        career=_text(said.get("career")) or None,
        at_ms=_milliseconds(_text(said.get("at")), record.timestamp_ms),
        times=_number(said.get("times"), 1),
        headers=own_headers(record.headers),
    )


def own_headers(headers: Headers) -> list[tuple[str, bytes]]:
    """Return the record's own headers, without those that a death or a replay has added. A value
    ``None`` becomes ``b""``.
    """
    added = (PREFIX, REPLAYED)
    return [(name, value or b"") for name, value in headers if not name.startswith(added)]


def deaths(headers: Headers) -> int:
    times = (f"{PREFIX}times", f"{REPLAYED}times")
    return max([0, *(_number(value, 1) for name, value in headers if name in times)])


def _name(error: BaseException) -> str:
    kind = type(error)
    is_plain = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"


def _causes(error: BaseException) -> Iterator[str]:
    """Yield the error's text, then class and text of each error that caused it."""
    yield _said(error)
    seen = {id(error)}
    while True:
        cause = error.__cause__ if error.__suppress_context__ else error.__context__
        if cause is None or id(cause) in seen:  # (one of the user's may be false)
            return
        yield f"caused by {_name(cause)}: {_said(cause)}"
        seen.add(id(cause))
        error = cause


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as exc:  # noqa: BLE001  (a poison record must not escape because its error is poison too)
        return f"(its text cannot be had: {type(exc).__name__})"


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _cut(text: str, most_bytes: int) -> str:
    """Return ``text`` cut to ``most_bytes`` bytes of UTF-8, between characters; the ellipsis that
    shows the cut is counted.
    """
    data = text.encode("utf-8", "backslashreplace")  # (a lone surrogate has no UTF-8)
    if len(data) <= most_bytes:
        return data.decode()
    return data[: most_bytes - len("…".encode())].decode("utf-8", "ignore") + "…"


def _milliseconds(text: str, otherwise: int) -> int:
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return otherwise


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def _number(value: bytes | None, otherwise: N) -> int | N:
    text = (value or b"").decode("ascii", "replace")
    return int(text) if _WHOLE.fullmatch(text) else otherwise
