"""Every error that leaderq raises, under one root.

There is a class only where a caller would react differently. The message says the rest: it names
the value, where it came from, and what to do about it. Exceptions of kazoo and kafka-python never
leave ``leaderq.zookeeper`` and ``leaderq.kafka``: they are the ``__cause__`` of one of these.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeVar

Failures = Sequence[tuple[object, BaseException]]


class Reason(Enum):
    """Why a term ends. The value is the word in the ``term`` znode and in logs; ``sentence`` is for
    people.

    ``deposes``: the leadership is lost when this reason is known, so nothing may be written any
    more.
    """

    _value_: str
    sentence: str
    deposes: bool

    def __new__(cls, word: str, sentence: str, deposes: bool = False) -> Reason:
        reason = object.__new__(cls)
        reason._value_, reason.sentence, reason.deposes = word, sentence, deposes
        return reason

    SESSION = "session", "its ZooKeeper session is over", True
    LEASE = "lease", "the quorum was not heard from before the lease ran out", True
    FENCED = "fenced", "a newer leader has fenced it", True
    NODE_DELETED = "node-deleted", "its candidate znode was deleted", True
    HEALTH = "health", "the career reported itself unhealthy"
    FAILED = "failed", "the career failed"
    BUDGET = "budget", "a stage overran its budget"
    STEP_DOWN = "step-down", "an operator asked it to step down"
    TRANSFER = "transfer", "an operator transferred the leadership"
    SUPERSEDED = "superseded", "a candidate of a newer version stands"
    WITHDRAWN = "withdrawn", "the candidate withdrew"
    UNGUARDED = "unguarded", "its guardian is gone, or has let it go"
    RESIGNED = "resigned", "the career resigned"
    FINISHED = "finished", "the career has finished its work"


class LeaderqError(Exception):
    """The root of all leaderq errors.

    *Guarantees:* it can be pickled and copied if its attributes can, so it can be sent to other
    processes. *Not guaranteed:* its ``__cause__``, which Python does not pickle.
    """

    def __reduce__(self) -> tuple[object, ...]:
        # Python's own calls the class with the sentence, which is not what __init__ takes.
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[LeaderqError], args: tuple[object, ...], state: dict[str, object]) -> object:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(LeaderqError):
    """Something the user wrote cannot be used: an address, a class name, an option, a file.

    ``problems`` has a sentence for each problem; all that were found are reported at once.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class ServersUnreachable(LeaderqError):
    """ZooKeeper or Kafka did not answer in time at ``address``."""

    def __init__(self, what: str, address: str, *, waited_s: float, remedy: str = "") -> None:
        self.what = what
        self.address = address
        self.waited_s = waited_s
        hint = remedy or f"is {what} listening there, and may this host reach it?"
        super().__init__(f"{what} at {address!r} did not answer within {waited_s:.1f} s; {hint}")


class AccessRefused(LeaderqError):
    """A server answered, and refused the credentials or the operation."""


class FromOutside(BaseException):
    """Raised in a thread by another one: it says nothing about the code of that thread."""


class UnitAbandoned(FromOutside):
    """Raised in a unit whose term has ended: undo what the unit began, and let this
    exception pass.
    """


class CareerFailed(LeaderqError):
    """The user's career raised the exception that is the ``__cause__``."""

    def __init__(self, career: str, stage: str, error: BaseException) -> None:
        self.career = career
        self.stage = stage
        super().__init__(f"career {career!r} failed in {stage}: {told(error)}")


def told(error: BaseException) -> str:
    """``error`` in one line, for operators: its class and its text; for a group, those of its first
    error.
    """
    error, *others = leaves(error)
    more = f" (and {len(others)} more)" if others else ""
    try:
        text = " ".join(str(error).split())
        return f"{type(error).__name__}: {text}".removesuffix(": ") + more
    except Exception as exc:  # noqa: BLE001 - an error of the user's, whose __str__ fails
        return f"{type(error).__name__}, which cannot be told: {type(exc).__name__}"


def leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group of errors and in its groups; if ``error`` is not a group, itself."""
    found, left, seen = [], [error], set()
    while left:
        one = left.pop()
        try:
            inner: Any = getattr(one, "exceptions", None)
        except Exception:  # noqa: BLE001 - an error of the user's, whose __getattr__ fails
            inner = None
        is_group = isinstance(inner, tuple) and all(isinstance(i, BaseException) for i in inner)
        if not is_group:
            found.append(one)
        elif id(one) not in seen:  # a group of the user's may be in itself
            left += reversed(inner)
        seen.add(id(one))
    return found or [error]


Error = TypeVar("Error", bound=BaseException)


def with_cause(error: Error, cause: BaseException | None) -> Error:
    """Return ``error``, as if it had been raised from ``cause``."""
    error.__cause__ = cause
    return error


class CommandFailed(LeaderqError):
    """The command of ``leaderq lead`` cannot be run, or has failed.

    ``exit_code`` is as in a shell: the command's own, 128 + n for signal n, 126 if it cannot be
    executed, 127 if it was not found.
    """

    def __init__(self, command: str, how: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(f"command {command!r} {how}")


class Deposed(LeaderqError):
    """Work was attempted on a term that is over; ``term`` is its number.

    ``newest``: the higher number that a store had seen, if a store refused the work; else ``None``.
    """

    def __init__(
        self, *, term: int, reason: Reason, newest: int | None = None, where: str = ""
    ) -> None:
        self.term = term
        self.reason = reason
        self.newest = newest
        detail = f": {where}" if where else ""
        super().__init__(f"term {term} is over ({reason.sentence}); its work must stop{detail}")


class ZooKeeperError(LeaderqError):
    """ZooKeeper refused or lost a request for ``path``. ``index``: the place of the operation in a
    multi.
    """

    def __init__(self, message: str, *, path: str | None = None, index: int | None = None) -> None:
        self.path = path
        self.index = index
        super().__init__(message)


class NoNode(ZooKeeperError):
    """The znode, or the parent of the znode to create, does not exist."""


class NodeExists(ZooKeeperError):
    """The znode to create already exists."""


class BadVersion(ZooKeeperError):
    """The data version of the znode is not the expected one: someone else wrote first."""


class NotEmpty(ZooKeeperError):
    """The znode to delete has children."""


class ConnectionLost(ZooKeeperError):
    """The connection broke, or no answer came in time: the outcome of a write is unknown."""


class NotConnected(ConnectionLost):
    """The request was not sent, because the session has no connection now: nothing happened."""


class SessionExpired(ZooKeeperError):
    """The session is over: its ephemeral znodes are gone or will be, and it serves no request."""


class SessionClosed(ZooKeeperError):
    """The session was closed by its owner."""


class KafkaError(LeaderqError):
    """Kafka refused or lost a request."""


class KafkaFenced(KafkaError):
    """The broker refused this consumer, because a newer one has taken its place."""


class UnknownTopic(KafkaError):
    """A topic to read does not exist on the cluster."""


class MessageTooLarge(KafkaError):
    """A message is larger than its topic, or the producer, accepts; it was not stored."""


class ServerFailed(LeaderqError):
    """A server of ``leaderq.testing`` did not start, or died. The message ends with its log."""


class MissingPiece(LeaderqError):
    """An extra or a Java runtime is not installed; the message says how to get it."""


class RequestRefused(LeaderqError):
    """An operator's request cannot be carried out at present; the message says why."""


_MALFORMED = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError


class CorruptRecord(LeaderqError):
    """A znode of leaderq holds something that leaderq did not write; nothing was changed."""

    @classmethod
    @contextmanager
    def unless(cls, what: str, path: str, data: bytes, remedy: str) -> Iterator[None]:
        """Raise it if the block, which parses ``data`` of the znode ``path``, finds that this is
        not ``what`` it should be.
        """
        try:
            yield
        except _MALFORMED as exc:
            problem = f"the znode {path} holds {data[:60]!r}, which is not {what} ({exc})"
            raise cls(f"{problem}; {remedy}") from exc


class NoPermission(ZooKeeperError, AccessRefused):
    """The credentials of the session do not allow this operation on this znode."""


class TooLarge(ZooKeeperError):
    """The whole request is larger (in bytes) than the server accepts; it was not sent."""

    def __init__(self, what: str, *, size: int, limit: int, path: str | None = None) -> None:
        self.size = size
        self.limit = limit
        sizes = f"{what} takes {size} bytes; the server accepts {limit} (jute.maxbuffer)"
        super().__init__(f"{sizes}; send less, or several requests", path=path)


class OffsetOutOfRange(KafkaError):
    """The offset to continue from is gone: deleted, truncated, or the topic was created again."""


class AlreadyStored(LeaderqError):
    """The results of these records are already stored, with their offsets; nothing was written.

    An earlier attempt was committed, and only its answer was lost. ``stored`` is the stored offset
    of the partition ``where``; ``first`` is the offset of the first record of the batch. A career
    lets this error out of ``handle``: the records below ``stored`` then count as handled.
    """

    def __init__(self, where: object, *, stored: int, first: int) -> None:
        self.where = where
        self.stored = stored
        self.first = first
        what = f"{where}: the store is already at offset {stored}, the batch starts at {first}"
        super().__init__(f"{what}; was an earlier attempt committed, and only its answer lost?")


class CorruptItem(CorruptRecord):
    """A znode of a queue does not hold what Curator would write. It was left there, or set
    aside.
    """


class ClaimLost(LeaderqError):
    """The item does not belong to this consumer any more: its session ended, or someone removed the
    item.

    Nothing was acknowledged. The item was delivered to another consumer, or will be.
    """


class QueueEmpty(LeaderqError):
    """An item was requested from a queue that has none."""


class QueueClosed(LeaderqError):
    """The queue was closed by its owner, or never started."""


class PutsFailed(LeaderqError):
    """Of several items, some were not stored, or it is not known whether they were.

    ``stored`` and ``failed`` count the items. ``failures`` has the first items that failed, each
    with its error: ``ConnectionLost`` if it is not known whether the item was stored, any other
    error if it was not stored.
    """

    def __init__(self, *, stored: int, failed: int, failures: Failures) -> None:
        self.stored = stored
        self.failed = failed
        self.failures = tuple(failures)
        first = failures[0][1] if failures else None
        text = f"; the first: {told(first)}" if first is not None else ""
        share = f"{failed} of {stored + failed} items"
        super().__init__(f"{share} were not stored, or it is not known{text}")


class BufferFull(LeaderqError, queue.Full):
    """A buffered producer has no room, in memory or on disk; the request was not accepted."""


class ProducerClosed(LeaderqError):
    """The buffered producer was closed, or belongs to the process that this one was forked from;
    nothing was accepted.

    Raised by the future of a request that was accepted before: it is in the journal, as the record
    with the id ``record_id``.
    """

    def __init__(self, message: str, record_id: int | None = None) -> None:
        self.record_id = record_id
        super().__init__(message)


class RequestTooLarge(LeaderqError):
    """One request exceeds the whole buffer; it was not accepted. Sizes are bytes."""

    def __init__(self, *, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        sizes = f"a request of {size} bytes does not fit into a buffer of {limit}"
        super().__init__(f"{sizes}; raise max_bytes, or send less")


class RequestGivenUp(LeaderqError):
    """A buffered producer gave up an accepted request; ``reason`` says why, and perhaps
    ``__cause__``.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the request was given up: {reason}")


class RequestsLost(LeaderqError):
    """A buffered producer was closed, and some requests that it had accepted are neither confirmed
    nor safely in a journal. ``settlement`` says how many, which, and why.
    """

    def __init__(self, told: str, settlement: object) -> None:
        self.settlement = settlement
        super().__init__(f"requests were lost: {told}")


class SinkAway(LeaderqError):
    """A sink did not accept a batch, or did not confirm it; the batch may be sent again."""


class SinkBusy(SinkAway):
    """A sink accepted a batch and keeps trying to store it; send the same batch again."""


class SinkBroken(LeaderqError):
    """A sink accepts nothing until somebody repairs it: access, a topic's name, a closed queue."""


class QueueFull(LeaderqError, queue.Full):
    """A queue of ``capacity`` requests, in this process, had no room in time for one more."""

    def __init__(self, name: str, *, capacity: int, waited_s: float) -> None:
        self.capacity = capacity
        self.waited_s = waited_s
        what = f"queue {name!r} is full ({capacity} requests); no room within {waited_s:g} s"
        super().__init__(f"{what}, the request was not accepted")


class DeadlineExceeded(LeaderqError, TimeoutError):
    """A request was not started by its deadline, and never will be; noticed ``late_s`` late."""

    def __init__(self, name: str, *, late_s: float) -> None:
        self.late_s = late_s
        what = f"the request was not started in queue {name!r} by its deadline"
        super().__init__(f"{what} (noticed {late_s:.3f} s late); it will not be")


class RequestCancelled(LeaderqError):
    """A request was accepted by a queue that was closed before the request was started."""


class WouldDeadlock(LeaderqError):
    """This thread was about to wait for something that only it can do; it did not wait."""


class NotElected(LeaderqError, TimeoutError):
    """The candidate of a block was not elected to lead ``career`` in ``waited_s`` seconds, and left
    the line.
    """

    def __init__(self, career: str, candidate: str, *, waited_s: float) -> None:
        self.career = career
        who = f"candidate {candidate!r} of {career!r}"
        super().__init__(f"{who} was not elected within {waited_s:g} s; it has left the line")


class CoordinatorClosed(LeaderqError):
    """A queue coordinator was closed before the request could run; nothing runs in its place."""


class WaitTimedOut(LeaderqError, TimeoutError):
    """A request waited for its turn on a key until its time-out; it did not run. ``covers`` other
    requests were declined because this one waited; the coordinator's docs say which request runs
    for them now.
    """

    def __init__(self, key: object, *, waited_s: float, covers: int = 0) -> None:
        self.covers = covers
        others = f"; {covers} that relied on it are passed on" if covers else ""
        what = f"key {key!r}: no turn for this request within {waited_s:g} s, it was given up"
        super().__init__(what + others)


class TokenOver(LeaderqError):
    """The right to work on a key is over; nothing was written. ``number`` is the fencing token."""

    def __init__(self, key: object, *, number: int, reason: str) -> None:
        self.key = key
        self.number = number
        self.reason = reason
        super().__init__(f"token {number} of key {key!r} is over ({reason}); its work must stop")


class JournalLocked(LeaderqError):
    """The directory of the journal is open in another place, in this or in another process."""


class JournalClosed(LeaderqError):
    """The journal was closed, or belongs to the process that this one was forked from; nothing was
    stored.
    """


class JournalFull(LeaderqError):
    """The journal cannot grow now: its limit, the reserve of free space, a full disk. Nothing was
    stored. It accepts records again when acknowledged records were deleted, or the disk has space.
    """


class JournalFailed(LeaderqError):
    """The disk refuses writes or syncs (see ``__cause__``), so the record was not accepted. Or a
    sync failed after records had been accepted, or a journal cannot be opened; then the message
    says so.
    """


class JournalSlow(LeaderqError, TimeoutError):
    """The disk did not answer in time. The record was accepted, keeps its place, and is stored when
    the disk takes it. Or there was no room for the record; then the message says so.
    """


class JournalRecordTooLarge(LeaderqError):
    """The bytes to append exceed one segment; nothing was stored. Sizes are bytes."""

    def __init__(self, *, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        sizes = f"{size} bytes were to be appended at once, but a segment takes {limit}"
        super().__init__(f"{sizes}; raise segment_bytes, or append in pieces")
