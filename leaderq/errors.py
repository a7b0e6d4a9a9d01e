"""Every error leaderq raises, under one root.

A class exists only where a caller would react differently; the rest is in the message, which names the value, the place it
came from and what to do about it. Exceptions of kazoo and kafka-python never leave ``leaderq.zookeeper`` and ``leaderq.kafka``:
they arrive here as the ``__cause__`` of one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class Reason(Enum):
    """Why a term ends, as :class:`Deposed` and events tell it; the value is the word that stands in the ``term`` znode and in logs."""

    SESSION = "session"
    LEASE = "lease"
    FENCED = "fenced"
    NODE_DELETED = "node-deleted"
    HEALTH = "health"
    FAILED = "failed"
    BUDGET = "budget"
    STEP_DOWN = "step-down"
    TRANSFER = "transfer"
    WITHDRAWN = "withdrawn"

    @property
    def sentence(self) -> str:
        """The reason as a person would put it."""
        return _SENTENCES[self]

    @property
    def deposes(self) -> bool:
        """Whether leadership is already lost when this reason is known, so that nothing may be written any more."""
        return self in _DEPOSING


_SENTENCES = {
    Reason.SESSION: "its ZooKeeper session is over",
    Reason.LEASE: "the quorum was not heard from before the lease ran out",
    Reason.FENCED: "a newer leader has fenced it",
    Reason.NODE_DELETED: "its candidate znode was deleted",
    Reason.HEALTH: "the career reported itself unhealthy",
    Reason.FAILED: "the career failed",
    Reason.BUDGET: "a stage overran its budget",
    Reason.STEP_DOWN: "an operator asked it to step down",
    Reason.TRANSFER: "an operator transferred the leadership",
    Reason.WITHDRAWN: "the candidate withdrew",
}
_DEPOSING = frozenset({Reason.SESSION, Reason.LEASE, Reason.FENCED, Reason.NODE_DELETED})


class LeaderqError(Exception):
    """The root of all leaderq errors."""


class ConfigurationError(LeaderqError):
    """Something the user wrote cannot be used: an address, a class name, an option, a file.

    ``problems`` holds one sentence each; all problems found are reported at once.
    """

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class ServersUnreachable(LeaderqError):
    """ZooKeeper or Kafka did not answer in time at the address given."""

    def __init__(self, what: str, address: str, *, waited_s: float, remedy: str = "") -> None:
        self.what = what
        self.address = address
        self.waited_s = waited_s
        hint = remedy or f"is {what} listening there, and may this host reach it?"
        super().__init__(f"{what} at {address!r} did not answer within {waited_s:.1f} s; {hint}")


class AccessRefused(LeaderqError):
    """A server answered, and refused these credentials or this operation."""


class CareerFailed(LeaderqError):
    """The user's career raised; the original exception is the ``__cause__``."""

    def __init__(self, career: str, stage: str, error: BaseException) -> None:
        self.career = career
        self.stage = stage
        super().__init__(f"career {career!r} failed in {stage}: {type(error).__name__}: {error}")


class Deposed(LeaderqError):
    """Work was attempted on a term that is over.

    ``reason`` is a :class:`Reason`; ``term`` is the number of the term that ended.
    """

    def __init__(self, *, term: int, reason: Reason) -> None:
        self.term = term
        self.reason = reason
        super().__init__(f"term {term} is over ({reason.sentence}); its work must stop")


class ZooKeeperError(LeaderqError):
    """ZooKeeper refused or lost a request.

    ``path`` is the znode meant; ``index`` is the position of the operation that failed when the request was a multi.
    """

    def __init__(self, message: str, *, path: str | None = None, index: int | None = None) -> None:
        self.path = path
        self.index = index
        super().__init__(message)


class NoNode(ZooKeeperError):
    """The znode, or the parent of the znode to create, does not exist."""


class NodeExists(ZooKeeperError):
    """The znode to create exists already."""


class BadVersion(ZooKeeperError):
    """The znode's data version is not the expected one: someone wrote first."""


class NotEmpty(ZooKeeperError):
    """The znode to delete has children."""


class ConnectionLost(ZooKeeperError):
    """The connection broke, or no answer came in time: the outcome of a write is unknown."""


class NotConnected(ConnectionLost):
    """The request was not sent, for the session has no connection at the moment: nothing happened."""


class SessionExpired(ZooKeeperError):
    """The session is over: its ephemeral znodes are gone, or will be, and none of its requests will be served."""


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
    """A server that ``leaderq.testing`` was to run did not start, or died; the message ends with its last log lines."""


class MissingPiece(LeaderqError):
    """Something that must be installed is not there (an extra, a Java runtime); the message says how to get it."""


class RequestRefused(LeaderqError):
    """An operator's request cannot be carried out as things stand; the message says why not."""


class CorruptRecord(LeaderqError):
    """A znode of leaderq holds something that leaderq did not write; nothing was changed."""


class NoPermission(ZooKeeperError, AccessRefused):
    """The session's credentials do not allow this operation on this znode."""


class TooLarge(ZooKeeperError):
    """The request is larger than the server accepts; it was not sent.

    ``size`` and ``limit`` are bytes of the whole request.
    """

    def __init__(self, what: str, *, size: int, limit: int, path: str | None = None) -> None:
        self.size = size
        self.limit = limit
        super().__init__(
            f"{what} takes {size} bytes, and the server accepts {limit} (jute.maxbuffer); send less, or in several requests",
            path=path,
        )


class OffsetOutOfRange(KafkaError):
    """The offset to read on from is not on the topic any more (deleted by retention, truncated, or the topic was made anew)."""


class AlreadyStored(LeaderqError):
    """The results of these records are stored already, with their offsets; nothing was written.

    A former try of the batch was committed although its answer was lost. ``stored`` is the offset stored for the partition named
    in the message, ``first`` that of the first record that was to be stored.
    """

    def __init__(self, where: object, *, stored: int, first: int) -> None:
        self.stored = stored
        self.first = first
        super().__init__(
            f"{where}: the store has come to offset {stored} already, and a batch from {first} on was to be stored; "
            "was its former try committed, and only the answer lost?"
        )


class CorruptItem(CorruptRecord):
    """A znode in a queue does not hold what Curator would have written there; it was left where it is, or set aside."""


class ClaimLost(LeaderqError):
    """The item is not this consumer's any more (its session ended, or somebody removed the item): nothing was acknowledged.

    It has been, or will be, given to another consumer.
    """


class QueueEmpty(LeaderqError):
    """An item was demanded of a queue that has none."""


class QueueClosed(LeaderqError):
    """The queue was closed by its owner, or never started."""


class PutsFailed(LeaderqError):
    """Of several items put, some were not stored, or nobody knows whether they were.

    ``stored`` is the number of those stored; ``failed`` of those not; ``failures`` are the first of the latter, each with its error:
    ``ConnectionLost`` if the outcome is unknown, any other if it was certainly not stored.
    """

    def __init__(self, *, stored: int, failed: int, failures: Sequence[tuple[object, BaseException]]) -> None:
        self.stored = stored
        self.failed = failed
        self.failures = tuple(failures)
        first = f"; the first: {type(failures[0][1]).__name__}: {failures[0][1]}" if failures else ""
        super().__init__(f"{failed} items of {stored + failed} were not stored, or not certainly{first}")


class BufferFull(LeaderqError):
    """A buffered producer has no room for the request, in memory or on disk; it was not taken."""


class ProducerClosed(LeaderqError):
    """The buffered producer was closed, or belongs to the process that this one was forked from; the request was not taken."""


class RequestTooLarge(LeaderqError):
    """One request is larger than the whole buffer may be; it was not taken. ``size`` and ``limit`` are bytes."""

    def __init__(self, *, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"a request of {size} bytes does not fit into a buffer of {limit}; raise max_bytes, or send less")


class RequestGivenUp(LeaderqError):
    """A buffered producer has given up a request that it had accepted; ``reason`` says why, the ``__cause__`` what was raised."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the request was given up: {reason}")


class SinkAway(LeaderqError):
    """A sink did not take a batch, or did not say so; the batch may be given to it again."""


class SinkBusy(SinkAway):
    """A sink has taken a batch and keeps trying to store it; the same batch must be given again, to hear what became of it."""


class SinkBroken(LeaderqError):
    """A sink will take nothing until somebody repairs something (access, a topic's name, a closed queue)."""


class QueueFull(LeaderqError):
    """A bounded queue in this process had no room in time; the request was not taken. ``capacity`` counts requests."""

    def __init__(self, name: str, *, capacity: int, waited_s: float) -> None:
        self.capacity = capacity
        self.waited_s = waited_s
        super().__init__(
            f"queue {name!r} is full ({capacity} requests); no room within {waited_s:g} s, the request was not taken"
        )


class DeadlineExceeded(LeaderqError):
    """A request had not been begun when its deadline came, and will not be. ``late_s`` says by how much when that was noticed."""

    def __init__(self, name: str, *, late_s: float) -> None:
        self.late_s = late_s
        super().__init__(
            f"the request was not begun in queue {name!r} by its deadline (noticed {late_s:.3f} s late); it will not be"
        )


class RequestCancelled(LeaderqError):
    """A request was accepted by a queue that was closed before the request was begun; it was not applied."""


class WouldDeadlock(LeaderqError):
    """This thread was about to wait for something that only this thread can do; it did not wait."""


class CoordinatorClosed(LeaderqError):
    """A queue coordinator was closed before the request could run, or before it was made; nobody runs in its stead."""


class WaitTimedOut(LeaderqError):
    """A request waited for its turn on a key, and gave up when its time was over; it did not run, and does not wait any more.

    ``covers`` is the number of requests that were declined because this one waited, and that nobody covers now.
    """

    def __init__(self, key: object, *, waited_s: float, covers: int = 0) -> None:
        self.covers = covers
        others = f"; {covers} that relied on it are not covered any more" if covers else ""
        super().__init__(f"key {key!r}: not this request's turn within {waited_s:g} s, it was given up{others}")


class TokenOver(LeaderqError):
    """The right to work on a key is over; nothing was written. ``number`` is the fencing number of the token."""

    def __init__(self, key: object, *, number: int, reason: str) -> None:
        self.key = key
        self.number = number
        self.reason = reason
        super().__init__(f"token {number} of key {key!r} is over ({reason}); its work must stop")


class JournalLocked(LeaderqError):
    """Another process, or another object of this one, has the journal's directory open; nothing was touched."""


class JournalClosed(LeaderqError):
    """The journal was closed, or belongs to the process that this one was forked from; nothing was stored."""


class JournalFull(LeaderqError):
    """The journal may not, or cannot, grow at present: its cap, the reserve of free space, a full disk. Nothing was stored.

    It takes records again when there is room: acknowledged ones were deleted, or space was made on the disk.
    """


class JournalFailed(LeaderqError):
    """The disk refused a write or a sync; the ``__cause__`` says how. What was to be stored is not accepted.

    After a failed sync nobody knows what the disk holds: the record was cut off again, and if even that failed it may be there after the
    next opening.
    """


class JournalSlow(LeaderqError):
    """The disk did not answer in time: the record may be stored later, or not."""


class JournalRecordTooLarge(LeaderqError):
    """What was to be appended does not fit into one segment; it was not stored. ``size`` and ``limit`` are bytes."""

    def __init__(self, *, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(
            f"{size} bytes were to be appended at once, and a segment takes {limit}; raise segment_bytes, or append in pieces"
        )
