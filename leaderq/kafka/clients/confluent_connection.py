"""How clients of confluent-kafka (librdkafka) are connected, and what their errors mean.

librdkafka never raises for a broker that is unreachable or refuses a password: it tries again for
ever, tells an error callback in passing, and lets the call in hand run into its time-out.
:class:`ConfluentConnection` remembers what was told, so that the time-out can be explained. Nothing
is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException

from leaderq.config import KafkaSecurity
from leaderq.errors import ConfigurationError, LeaderqError
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
_TELLING = {"_SSL", "_RESOLVE", "_TRANSPORT"}
_UNUSABLE = {"_INVALID_ARG", "_CONFLICT"}


class ConfluentConnection:
    """Where the clients of one user connect, and which of their errors explains the next."""

    def __init__(self, address: str, security: KafkaSecurity) -> None:
        self._address = address
        self._security = security
        self.refusal: Any = None
        self._cause: Any = None

    def options(self) -> dict[str, Any]:
        security = self._security
        options: dict[str, Any] = {
            "bootstrap.servers": ",".join(bootstrap_servers(self._address)),
            "security.protocol": security.protocol,
            # 10 s between attempts by default: a leader would sleep through the broker's return.
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 1000,
            "retry.backoff.ms": 20,
            "log_level": 0,
            # even a fatal error is then not written to stderr: it waits for a queue never set
            "log.queue": True,
            # Else unreachable brokers are forgotten, to which requests still refer (B20).
            "metadata.recovery.strategy": "none",
            "error_cb": self._told,
        }
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

    def _told(self, error: Any) -> None:
        """Called by librdkafka (``error_cb``), on the thread that polls the client."""
        if FAILURES.get(error.name()) is Failure.REFUSED:
            self.refusal = error
        if error.name() in _TELLING:
            self._cause = error

    def remedy(self) -> str:
        """Advice against silence, with the last error, if any, which says why."""
        asked = "is Kafka listening there, and may this host reach it?"
        return (
            asked
            if self._cause is None
            else f"{asked} The last attempt ended with {self._cause.str()}"
        )

    def made(self, kind: Callable[[dict[str, Any]], Any], options: dict[str, Any]) -> Any:
        """A client of this class; raises ConfigurationError for an option that a user has set."""
        try:
            return kind(options)
        except KafkaException as exc:
            if exc.args[0].name() not in _UNUSABLE:
                raise self.error(exc, "connecting") from exc
            what = f"confluent-kafka cannot use an option of client_options: {exc.args[0].str()}"
            raise ConfigurationError(what) from exc

    def error(self, exc: Any, doing: str) -> LeaderqError:
        """The error of ours for a ``KafkaException``, or a ``KafkaError`` (a value there)."""
        error = exc.args[0] if isinstance(exc, BaseException) and exc.args else exc
        name = error.name() if hasattr(error, "name") else type(exc).__name__
        failure = FAILURES.get(name)
        if failure is Failure.AWAY and self.refusal is not None:
            error, name, failure = self.refusal, self.refusal.name(), Failure.REFUSED
        if failure is None:
            is_away = hasattr(error, "retriable") and error.retriable() and not error.fatal()
            failure = Failure.AWAY if is_away else Failure.OTHER
        said = error.str() if hasattr(error, "str") else error
        return failure.error(f"{doing} at Kafka {self._address!r}: {name}: {said}")

    @contextmanager
    def errors_translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as exc:
            raise self.error(exc, doing) from exc
