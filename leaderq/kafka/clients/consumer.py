"""The interface of a Kafka consumer, which is implemented for each client library.

One thread owns a consumer; no method is called from two threads. Every call is bounded by its
``timeout_s`` or by the consumer's own request time-out. A library's own exceptions never come out;
each is raised as one of

* :class:`KafkaAway`: no broker answers for now, or it is busy with itself; try the same call again;
* :class:`MembershipLost`: the group does not know this member's generation any more; join again,
  then decide what is true;
* :class:`BatchLost` (stores and producers): the effects of the batch in hand are gone, or may be;
* :class:`EffectRefused` (stores and producers): nothing is stored, because of what an effect
  contains;
* :class:`~leaderq.errors.KafkaFenced`: a newer member or producer of the same name exists; this one
  is over for ever;
* ``AccessRefused``, ``UnknownTopic``, ``OffsetOutOfRange``, ``KafkaError``: trying again does not
  help.

What blocks in a client library, the end of a transaction for instance, is done by a
:class:`~leaderq.threads.SerialExecutor`, while the consumer's thread goes on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar

from leaderq.base import clock
from leaderq.config import KafkaSecurity
from leaderq.errors import (
    AccessRefused,
    KafkaError,
    KafkaFenced,
    LeaderqError,
    MessageTooLarge,
    MissingPiece,
    OffsetOutOfRange,
    ServersUnreachable,
    UnknownTopic,
)
from leaderq.kafka.record import Offset, Partition, Record

log = logging.getLogger(__name__)

Offsets = Mapping[Partition, int]
T = TypeVar("T")
_ASK_AGAIN_S = 0.1
_LEAST_OPEN_S = 0.1


class KafkaAway(KafkaError):
    """Kafka does not answer for now; nothing is lost, and the same call may be repeated."""


def until_answered(request: Callable[[], T], timeout_s: float) -> T:
    """Return the result of ``request()``. It is called again while it raises ``KafkaAway``, for up
    to ``timeout_s`` seconds.
    """
    deadline = clock.now_s() + timeout_s
    while True:
        try:
            return request()
        except KafkaAway as exc:
            if clock.now_s() + _ASK_AGAIN_S > deadline:
                raise KafkaAway(f"{exc}; asked for {timeout_s:g} s") from (exc.__cause__ or exc)
            clock.sleep(_ASK_AGAIN_S)


def advice(last_error: object, more: str = "") -> str:
    """Return what to do when no broker answers. ``last_error``: that of the last attempt to
    connect, if it is known.
    """
    said = f"is Kafka listening there, and may this host reach it?{more}"
    return said if last_error is None else f"{said} The last attempt ended with {last_error}"


@contextmanager
def connecting(address: str, remedy: Callable[[], str]) -> Iterator[None]:
    """Within the block, turn ``KafkaAway`` into ``ServersUnreachable``, with the advice of
    ``remedy``.
    """
    began_s = clock.now_s()
    try:
        yield
    except KafkaAway as exc:
        waited_s = clock.now_s() - began_s
        raise ServersUnreachable("Kafka", address, waited_s=waited_s, remedy=remedy()) from exc


class MembershipLost(KafkaError):
    """The broker does not know this member's generation; the last commit's outcome is unknown."""


class BatchLost(KafkaError):
    """The effects of the batch in hand are lost, or may be: only the stored offsets can tell."""


class GroupIncompatible(KafkaError):
    """The members of the group share its partitions by a rule that a career does not know."""


class EffectRefused(KafkaError):
    """The batch in hand is not stored, because of what one of its effects contains: ``error`` says
    why. The record that added this effect is at fault, and trying again does not help.
    """

    def __init__(self, error: LeaderqError) -> None:
        self.error = error
        super().__init__(str(error))


class LogTruncated(OffsetOutOfRange):
    """Records read from ``partitions`` were cut off, and perhaps others written in their place."""

    def __init__(self, at: str, partitions: frozenset[Partition]) -> None:
        self.partitions = partitions
        super().__init__(str(Failure.GONE.error(at)))


class MessageInvalid(KafkaError):
    """The broker refuses a message, because it is invalid or because another of its batch is."""


class OutOfOrder(KafkaError):
    """The broker refuses a message because one in front of it was not stored (B43)."""


class Failure(Enum):
    """What a library's own error means. Each member has leaderq's error class, advice to add, and
    the names of the errors that mean this: those of Kafka's protocol, as either library spells
    them, librdkafka's own (they begin with ``_``), and kafka-python's classes.
    """

    FENCED = (
        KafkaFenced,
        "; a newer member or producer of the same name has taken over",
        "FENCED_INSTANCE_ID PRODUCER_FENCED INVALID_PRODUCER_EPOCH _FENCED",
    )
    MEMBERSHIP = (
        MembershipLost,
        "",
        "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS _ASSIGNMENT_LOST"
        " CommitFailedError",
    )
    INCOMPATIBLE = GroupIncompatible, "", "INCONSISTENT_GROUP_PROTOCOL"
    REFUSED = (
        AccessRefused,
        "; check user, password, mechanism and the broker's ACLs",
        "_AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM ILLEGAL_SASL_STATE"
        " TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED"
        " TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED"
        " AuthorizationError",
    )
    GONE = (
        OffsetOutOfRange,
        "; the records at the committed offset are gone: deleted, or cut off when a leader was"
        " elected that did not have them. Nothing is skipped silently: set the group's offsets"
        " (kafka-consumer-groups --reset-offsets) once you have decided where to go on",
        "OFFSET_OUT_OF_RANGE _AUTO_OFFSET_RESET _LOG_TRUNCATION",
    )
    CODEC = (
        MissingPiece,
        "; pip install 'kafka-python[lz4,snappy,zstd]', or use client='confluent'",
        "UnsupportedCodecError",
    )
    UNKNOWN_TOPIC = (
        UnknownTopic,
        "; is the topic's name written right?",
        "UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID TOPIC_EXCEPTION INVALID_TOPIC _UNKNOWN_TOPIC"
        " _UNKNOWN_PARTITION",
    )
    TOO_LARGE = (
        MessageTooLarge,
        "; send less, or raise max.message.bytes of the topic",
        "MSG_SIZE_TOO_LARGE MESSAGE_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE",
    )
    INVALID = (
        MessageInvalid,
        "",
        "INVALID_RECORD INVALID_MSG CORRUPT_MESSAGE INVALID_TIMESTAMP _INVALID_DIFFERENT_RECORD",
    )
    OUT_OF_ORDER = OutOfOrder, "", "OUT_OF_ORDER_SEQUENCE_NUMBER"
    # What passes by itself, though librdkafka does not always mark it as retriable.
    # _DESTROY_BROKER: one broker of a cluster was forgotten, or has come back under its id;
    # _NOENT: no partition asked about has a leader, or its topic was deleted a moment ago.
    AWAY = (
        KafkaAway,
        "",
        "_TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT _TRANSPORT _ALL_BROKERS_DOWN _RESOLVE"
        " _WAIT_COORD _DESTROY_BROKER _NOENT _WAIT_CACHE _IN_PROGRESS _PREV_IN_PROGRESS _RETRY"
        " _OUTDATED BROKER_NOT_AVAILABLE CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS"
        " COORDINATOR_NOT_AVAILABLE KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE NETWORK_EXCEPTION"
        " NOT_COORDINATOR NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND"
        " NOT_LEADER_FOR_PARTITION OFFSET_NOT_AVAILABLE REQUEST_TIMED_OUT UNSTABLE_OFFSET_COMMIT"
        " FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH REPLICA_NOT_AVAILABLE",
    )
    OTHER = KafkaError, "", ""

    def error(self, at: str) -> LeaderqError:
        kind: type[LeaderqError]
        kind, remedy, _names = self.value
        return kind(f"{at}{remedy}")


FAILURES: Mapping[str, Failure] = {
    name: failure for failure in Failure for name in failure.value[2].split()
}


@dataclass(frozen=True)
class TopicPattern:
    """All topics whose whole name matches ``regex``, also those made later. Kafka's own topics
    (``__consumer_offsets``) and ``without``, the career's dead-letter topic, never match.
    """

    regex: re.Pattern[str]
    without: str | None = None

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``names`` that match, sorted."""
        mine = (name for name in names if name != self.without and not name.startswith("__"))
        return tuple(sorted(name for name in mine if self.regex.fullmatch(name)))


@dataclass(frozen=True)
class ClientSettings:
    """How any client is made. ``options`` are the client library's own, and override all others.
    ``mark`` is noted beside offsets, for other deployments.
    """

    address: str
    _: KW_ONLY
    client_id: str = "leaderq"
    security: KafkaSecurity = field(default_factory=KafkaSecurity)
    open_timeout_s: float = 10.0
    request_timeout_s: float = 10.0
    options: Mapping[str, Any] = field(default_factory=dict)
    mark: str = ""


@dataclass(frozen=True)
class ConsumerSettings(ClientSettings):
    """What a consumer reads, and as whom.

    ``member`` is the ``group.instance.id``: only the member that joined under it last may commit.
    With ``membership=False`` the group is not joined: all partitions are simply taken (*assigned*),
    and a commit is only information for tools. ``session_timeout_s`` is long on purpose: membership
    should outlive a time without any leader, as the next join would wait for 3 s when the group has
    become empty.
    """

    topics: tuple[str, ...] | TopicPattern
    group: str
    member: str
    membership: bool = True
    session_timeout_s: float = 300.0
    max_poll_interval_s: float = 300.0


class KafkaClient:
    """What all clients have in common: how one is opened, closed, and used only between."""

    _natives: tuple[type[BaseException], ...] = ()
    """The library's own errors."""
    _settings: Any

    def __init__(self, settings: Any) -> None:
        self._settings = settings
        self._client: Any = None

    def open(self, timeout_s: float | None = None) -> None:
        """Connect, and neither join nor fence. Takes at most ``timeout_s`` seconds, and no longer
        than the settings allow. Also raises ``ServersUnreachable`` and ``MissingPiece``.
        """
        most_s = self._settings.open_timeout_s
        wait_s = most_s if timeout_s is None else max(_LEAST_OPEN_S, min(timeout_s, most_s))
        try:
            with connecting(self._settings.address, self._remedy):
                self._connect(clock.now_s() + wait_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free everything within about a second. Never raises."""
        try:
            if self._client is not None:
                self._let_go()
        except Exception:
            log.debug("closing a Kafka client failed, it is dropped", exc_info=True)
        finally:
            self._client = None

    def _opened(self, what: str) -> Any:
        if self._client is None:
            raise KafkaError(f"this {what} is not open")
        return self._client

    @contextmanager
    def _errors_translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except self._natives as exc:
            raise self._translated(exc, doing) from exc

    def _remedy(self) -> str:
        """Return advice for when no broker answers; ``""``: none."""
        return ""

    # ---- what each client library does in its own way

    def _connect(self, until_s: float) -> None:
        """Make the library's ``_client``, and wait until it can be used."""
        raise NotImplementedError

    def _let_go(self) -> None:
        """Close the library's ``_client``."""
        raise NotImplementedError

    def _translated(self, exc: Any, doing: str) -> LeaderqError:
        """Return leaderq's error for one of the library's."""
        raise NotImplementedError


class CommitFuture(Protocol):
    """Something being stored."""

    def done(self, wait_s: float) -> bool:
        """Wait up to ``wait_s``; return whether it is stored durably. Raise if it failed."""


class LibraryConsumer(Protocol):
    """What each client library does in its own way for a :class:`ConsumerClient`."""

    @property
    def is_joining(self) -> bool:
        """Whether a new assignment is under way or not taken over yet. The broker may already know
        this member by its newer generation; then it would accept commits of partitions that now
        belong to other members.
        """

    def attend(self, timeout_s: float) -> None:
        """Stay a member without reading; joins again if the group asks for it."""

    def assigned(self) -> frozenset[Partition]:
        """The partitions held now."""

    def existing(self) -> frozenset[Partition]:
        """The partitions of the topics, as far as is known now; costs no request."""

    def topic_ids(self) -> dict[str, str]:
        """The broker's id of each topic known now. A topic that is created again has a new id."""

    def poll(self, timeout_s: float, max_records: int) -> dict[Partition, Sequence[Record]]:
        """Return up to ``max_records`` records, by partition. Waits up to ``timeout_s`` seconds for
        the first (0: polls once). An empty answer proves nothing.
        """

    def seek(self, offsets: Offsets, resting: Collection[Partition] = ()) -> None:
        """Read on from ``offsets``; the partitions ``resting`` are not read until the next call."""

    def positions(self) -> dict[Partition, int]:
        """The offset to read next, by partition. It may lie after transaction markers that follow
        the last record.
        """

    def group_metadata(self) -> Any:
        """This membership, for a transactional producer of the same library (KIP-447); ``None`` if
        this is no member at the moment.
        """

    def start_offsets(self, timeout_s: float) -> dict[Partition, int]:
        """The first offset that the broker still holds, of each existing partition."""

    def end_offsets(self, timeout_s: float) -> dict[Partition, int]:
        """The offset after the last *stable* record (the LSO) of each existing partition."""

    def log_ends(self) -> dict[Partition, int]:
        """The offset after the last record (the high watermark) of each partition held, as of the
        last fetch. Costs no request. A partition that was not fetched yet is absent.
        """

    def _find_topics(self, until_s: float) -> None:
        """Make the library's client, and let it learn of the topics."""

    def _join(self, timeout_s: float) -> bool: ...

    def _ask_to_join(self) -> None: ...

    def _hold(self, partitions: frozenset[Partition]) -> None:
        """Take ``partitions`` without a group, and count that in :attr:`ConsumerClient.joins`.
        Nothing is read before :meth:`seek`.
        """

    def _stored(
        self, partitions: Collection[Partition], timeout_s: float
    ) -> dict[Partition, tuple[Offset, str]]:
        """See :meth:`ConsumerClient.committed`; with what is noted beside each offset."""

    def _begin_commit(self, offsets: Offsets, note: str) -> CommitFuture: ...


_NOBODYS = 2**31 - 1  # a partition that no topic has, so that no transaction commits its offset


class ConsumerClient(KafkaClient, LibraryConsumer):
    """A consumer of all partitions of some topics. It is made, then :meth:`open` is called (which
    does *not* join, because that would fence the leader), then :meth:`join`, at last :meth:`close`.
    """

    _settings: ConsumerSettings
    notes: frozenset[str] = frozenset()
    """What is noted beside the offsets that :meth:`committed` has returned last."""

    def __init__(self, settings: ConsumerSettings) -> None:
        super().__init__(settings)
        self._pattern = settings.topics if isinstance(settings.topics, TopicPattern) else None
        self._allowed: Callable[[], None] = may_not_join
        self.joins = 0
        """How often partitions were assigned. When it has changed, the caller must :meth:`seek`."""

    def _connect(self, until_s: float) -> None:
        self._find_topics(until_s)
        names = {topic for topic, _ in self.existing()}
        address, topics = self._settings.address, self._settings.topics
        if isinstance(topics, TopicPattern):
            if not names:
                raise UnknownTopic(
                    f"no topic on Kafka {address!r} matches {topics.regex.pattern!r}; create one,"
                    " or correct the career's 'topics'"
                )
        elif missing := [topic for topic in topics if topic not in names]:
            raise UnknownTopic(
                f"no topic {', '.join(map(repr, missing))} on Kafka {address!r}; create it (leaderq"
                f" topics create {' '.join(missing)}), or correct the career's 'topics'"
            )
        # A topic just made, or an election going on: what is not ready is asked again.
        left_s = max(_LEAST_OPEN_S, until_s - clock.now_s())
        until_answered(lambda: self.refresh(left_s), left_s)

    def close(self) -> None:
        """Free everything, but do not leave the group: the next join would wait. Never raises."""
        self._allowed = may_not_join
        super().close()

    @property
    def _consumer(self) -> Any:
        return self._opened("consumer")

    def join(self, allowed: Callable[[], None], timeout_s: float) -> bool:
        """Become the one member of this name (or take all partitions); returns whether that has
        happened yet.

        ``allowed`` raises if this process may not be the member. The client calls it right before
        *each* request to join, now and later.
        """
        self._allowed = allowed
        return self._join(timeout_s) if self._settings.membership else self._take_all()

    def rejoin(self) -> None:
        """Ask for a new assignment at the next :meth:`attend` or :meth:`poll`."""
        if self._settings.membership:
            self._ask_to_join()
        else:
            self._take_all()

    def _take_all(self) -> bool:
        self._allowed()
        existing = self.existing()
        self._hold(existing)
        return bool(existing)

    def refresh(self, timeout_s: float) -> None:
        """Use every connection once, so that none is closed as idle and moved leaders are known."""
        if self._settings.membership:  # else nothing of the group, for which that needs a right
            # A leader that died may have left a transaction open, whose offsets would be waited
            # for: until the next leader fences, which this consumer is opened for.
            self.committed(timeout_s, {Partition(topic, _NOBODYS) for topic, _ in self.existing()})
        self.end_offsets(timeout_s)

    def committed(self, timeout_s: float, of: Collection[Partition] = ()) -> dict[Partition, int]:
        """Return the group's offsets of the partitions ``of``; by default of those that this
        consumer holds or, if it holds none, of all. A partition without a stored offset is absent.
        Waits while an open transaction may still commit one of them.
        """
        found = self._stored(of or self.assigned() or self.existing(), timeout_s)
        self.notes = frozenset(note for _, note in found.values() if note)
        return {where: at for where, (at, _) in found.items()}

    def commit(self, offsets: Offsets, note: str) -> CommitFuture:
        """Begin to store offsets, with ``note`` and the mark of the settings beside them. ``poll``
        may be called meanwhile. May raise ``KafkaAway`` if another commit is under way.
        """
        return self._begin_commit(offsets, note + self._settings.mark)


ConsumerFactory = Callable[[ConsumerSettings], ConsumerClient]


def may_not_join() -> None:
    """Raise ``KafkaError``. Stands for ``allowed`` while no call of ``join`` has given one."""
    raise KafkaError("this consumer is kept warm and may not join its group")
