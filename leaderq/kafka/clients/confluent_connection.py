"""confluent-kafka (librdkafka): whether it is there, how it is connected, what its errors mean.

It is optional: nothing here imports it before :func:`require` is called. It never raises for a
broker that is unreachable or refuses a password: it tries again for ever, tells an error callback
in passing, and lets the call in hand run into its time-out. :class:`ErrorCallback` remembers a
refusal, so that the time-out can be explained (:func:`translated`). Nothing of it is printed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leaderq.config import KafkaSecurity
from leaderq.errors import ConfigurationError, LeaderqError, MissingPiece
from leaderq.kafka.clients.client_options import bootstrap_servers
from leaderq.kafka.clients.consumer import Failure

_NAMES = {
    Failure.FENCED: "FENCED_INSTANCE_ID PRODUCER_FENCED INVALID_PRODUCER_EPOCH _FENCED",
    Failure.MEMBERSHIP: (
        "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS _ASSIGNMENT_LOST"
    ),
    Failure.INCOMPATIBLE: "INCONSISTENT_GROUP_PROTOCOL",
    Failure.REFUSED: (
        """_AUTHENTICATION SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM
        ILLEGAL_SASL_STATE TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED
        CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED"""
    ),
    Failure.GONE: "OFFSET_OUT_OF_RANGE _AUTO_OFFSET_RESET _LOG_TRUNCATION",
    Failure.UNKNOWN_TOPIC: (
        """UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID TOPIC_EXCEPTION _UNKNOWN_TOPIC
        _UNKNOWN_PARTITION"""
    ),
    Failure.TOO_LARGE: "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE",
    # Errors that pass by themselves, though librdkafka does not always mark them as retriable;
    # _DESTROY_BROKER: one broker of a cluster was forgotten, or has come back under its id; _NOENT:
    # no partition asked about has a leader, or its topic was deleted a moment ago.
    Failure.AWAY: (
        """_TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT _TRANSPORT _ALL_BROKERS_DOWN _RESOLVE
        _WAIT_COORD _DESTROY_BROKER _NOENT _WAIT_CACHE _IN_PROGRESS _PREV_IN_PROGRESS _RETRY
        _OUTDATED BROKER_NOT_AVAILABLE CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS
        COORDINATOR_NOT_AVAILABLE KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE NETWORK_EXCEPTION
        NOT_COORDINATOR NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND
        NOT_LEADER_FOR_PARTITION OFFSET_NOT_AVAILABLE REQUEST_TIMED_OUT UNSTABLE_OFFSET_COMMIT
        FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH REPLICA_NOT_AVAILABLE"""
    ),
}
FAILURES = {name: failure for failure, names in _NAMES.items() for name in names.split()}
_FORGETS_BROKERS = 0x020B00FF  # 2.11.0 of librdkafka, the first with this setting on by default

_TELLING = {"_SSL", "_RESOLVE", "_TRANSPORT"}


class ErrorCallback:
    """librdkafka's ``error_cb``: keeps the latest error; called on the client's polling thread."""

    def __init__(self) -> None:
        self.refusal: Any = None
        self.cause: Any = None

    def __call__(self, error: Any) -> None:
        if FAILURES.get(error.name()) is Failure.REFUSED:
            self.refusal = error
        if error.name() in _TELLING:
            self.cause = error

    def remedy(self) -> str:
        """Advice against silence, with the last error, which says why; ``""`` without one."""
        if self.cause is None:
            return ""
        return (
            "is Kafka listening there, and may this host reach it? The last attempt ended with"
            f" {self.cause.str()}"
        )


def require() -> Any:
    """The module ``confluent_kafka``; raises MissingPiece if it cannot be loaded."""
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError as exc:
        raise MissingPiece(
            f"the Kafka client 'confluent' cannot be used ({exc}): pip install 'leaderq[confluent]'"
        ) from exc


def connection_options(
    address: str, security: KafkaSecurity, errors: ErrorCallback | None = None
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": ",".join(bootstrap_servers(address)),
        "security.protocol": security.protocol,
        # 10 s between attempts by default: a leader would sleep through the broker's return.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 1000,
        "retry.backoff.ms": 20,
        "log_level": 0,
        # even a fatal error is then not written to stderr: it waits for a queue that is never set
        "log.queue": True,
        "error_cb": errors or ErrorCallback(),
    }
    if require().libversion()[1] >= _FORGETS_BROKERS:
        # It would forget unreachable brokers, to which requests still refer (B20).
        options["metadata.recovery.strategy"] = "none"
    if security.protocol.startswith("SASL_"):
        options["sasl.mechanism"] = security.mechanism
        options["sasl.username"] = security.user
        options["sasl.password"] = security.password
    if security.protocol.endswith("SSL"):
        options["ssl.ca.location"] = security.ca
        options["ssl.certificate.location"] = security.cert
        options["ssl.key.location"] = security.key
        options["ssl.key.password"] = security.key_password
        options["ssl.endpoint.identification.algorithm"] = (
            "https" if security.check_hostname else "none"
        )
    return {name: value for name, value in options.items() if value is not None}


def translated(
    exc: Any, doing: str, address: str, errors: ErrorCallback | None = None
) -> LeaderqError:
    """The error of ours for a ``KafkaException``, or a ``KafkaError`` (a value there)."""
    error = exc.args[0] if isinstance(exc, BaseException) and exc.args else exc
    name = error.name() if hasattr(error, "name") else type(exc).__name__
    failure = FAILURES.get(name)
    if failure is Failure.AWAY and errors is not None and errors.refusal is not None:
        error, name, failure = errors.refusal, errors.refusal.name(), Failure.REFUSED
    if failure is None:
        is_away = hasattr(error, "retriable") and error.retriable() and not error.fatal()
        failure = Failure.AWAY if is_away else Failure.OTHER
    said = error.str() if hasattr(error, "str") else error
    return failure.error(f"{doing} at Kafka {address!r}: {name}: {said}")


def refused_options(exc: Any) -> ConfigurationError | None:
    """The error to raise if a client refused an option that a user has set."""
    error = exc.args[0] if exc.args else None
    if error is None or error.name() not in ("_INVALID_ARG", "_CONFLICT"):
        return None
    return ConfigurationError(
        f"confluent-kafka cannot use an option of client_options: {error.str()}"
    )


@contextmanager
def confluent_errors_translated(
    doing: str, address: str, errors: ErrorCallback | None = None
) -> Iterator[None]:
    confluent = require()
    try:
        yield
    except confluent.KafkaException as exc:
        raise translated(exc, doing, address, errors) from exc
