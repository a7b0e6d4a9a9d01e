"""kafka-python's errors as leaderq's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors as native

from leaderq.errors import (
    AccessRefused,
    KafkaError,
    KafkaFenced,
    LeaderqError,
    MessageTooLarge,
    OffsetOutOfRange,
    UnknownTopic,
)
from leaderq.kafka.clients.drain import KafkaAway, MembershipLost

_MEMBERSHIP = (
    native.CommitFailedError,
    native.RebalanceInProgressError,
    native.IllegalGenerationError,
    native.UnknownMemberIdError,
)
REFUSALS = (
    native.AuthorizationError,
    native.SaslAuthenticationFailedError,
    native.UnsupportedSaslMechanismError,
    native.IllegalSaslStateError,
)
_SUPERSEDED = (native.ProducerFencedError, native.InvalidProducerEpochError)
_TOO_LARGE = (native.MessageSizeTooLargeError, native.RecordListTooLargeError)
_GONE = (native.OffsetOutOfRangeError, native.LogTruncationError)


def translated(exc: native.KafkaError, doing: str, address: str) -> LeaderqError:
    """The error of ours for ``exc``, met while ``doing`` something at ``address``."""
    at = f"{doing} at Kafka {address!r}: {type(exc).__name__}: {exc}"
    if isinstance(exc, native.FencedInstanceIdError):
        return KafkaFenced(f"{at}; a newer member of the same name has taken over")
    if isinstance(exc, _SUPERSEDED):
        return KafkaFenced(f"{at}; a newer producer of the same transactional id has taken over")
    if isinstance(exc, _MEMBERSHIP):
        return MembershipLost(at)
    if isinstance(exc, REFUSALS):
        return AccessRefused(f"{at}; check user, password, mechanism and the broker's ACLs")
    if isinstance(exc, _GONE):
        return OffsetOutOfRange(
            f"{at}; the records between the committed offset and the topic's first one are gone. Nothing is skipped "
            "silently: set the group's offsets (kafka-consumer-groups --reset-offsets) once you have decided where to go on"
        )
    if isinstance(exc, native.InvalidTopicError):
        return UnknownTopic(f"{at}; is the topic's name written right?")
    if isinstance(exc, _TOO_LARGE):
        return MessageTooLarge(f"{at}; send less, or raise max.message.bytes of the topic")
    if exc.retriable or isinstance(exc, native.KafkaConnectionError):
        return KafkaAway(at)
    return KafkaError(at)


@contextmanager
def speaking_leaderq(doing: str, address: str) -> Iterator[None]:
    """Let no exception of kafka-python out of the block."""
    try:
        yield
    except native.KafkaError as exc:
        raise translated(exc, doing, address) from exc
