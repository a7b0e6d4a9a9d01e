"""The answers of a simulated broker that refuses a request: the codes of Kafka's own protocol, and
their meaning for a client of leaderq.
"""

from __future__ import annotations

from enum import Enum

from leaderq.kafka.clients.consumer import Failure


class ErrorCode(Enum):
    """A code of the protocol, and its meaning for both real clients."""

    CONNECTION_BROKEN = -100, Failure.AWAY  # no broker said it: the request or its answer was lost
    OFFSET_OUT_OF_RANGE = 1, Failure.GONE
    UNKNOWN_TOPIC_OR_PARTITION = 3, Failure.AWAY
    NOT_LEADER_OR_FOLLOWER = 6, Failure.AWAY
    MESSAGE_TOO_LARGE = 10, Failure.TOO_LARGE
    COORDINATOR_NOT_AVAILABLE = 15, Failure.AWAY
    ILLEGAL_GENERATION = 22, Failure.MEMBERSHIP
    UNKNOWN_MEMBER_ID = 25, Failure.MEMBERSHIP
    REBALANCE_IN_PROGRESS = 27, Failure.MEMBERSHIP
    TOPIC_ALREADY_EXISTS = 36, Failure.OTHER
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, Failure.OTHER
    INVALID_PRODUCER_EPOCH = 47, Failure.FENCED
    INVALID_TXN_STATE = 48, Failure.OTHER
    CONCURRENT_TRANSACTIONS = 51, Failure.AWAY
    UNKNOWN_PRODUCER_ID = 59, Failure.OTHER
    FENCED_INSTANCE_ID = 82, Failure.FENCED
    UNSTABLE_OFFSET_COMMIT = 88, Failure.AWAY
    PRODUCER_FENCED = 90, Failure.FENCED

    @property
    def failure(self) -> Failure:
        return self.value[1]

    @property
    def is_retriable(self) -> bool:
        """Whether a client repeats the same request after this error."""
        return self.failure is Failure.AWAY


class RefusedByBroker(Exception):
    """A simulated broker refuses a request."""

    def __init__(self, code: ErrorCode, where: object = "") -> None:
        self.code = code
        super().__init__(f"{code.name} {where}".rstrip())
