"""How clients of confluent-kafka (librdkafka) are connected, and what their errors mean.

librdkafka never raises for a broker that is unreachable or refuses a password: it tries again for
ever, tells an error callback in passing, and lets the call in hand run into its time-out.
:class:`ConfluentConnection` remembers what was told, so that the time-out can be explained. Nothing
is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from leaderq.base import clock
from leaderq.config import KafkaSecurity
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.kafka.clients.client_options import bootstrap_servers, connection_table
from leaderq.kafka.clients.consumer import FAILURES, Failure, advice

_TELLING = {"_SSL", "_RESOLVE", "_TRANSPORT"}
_UNUSABLE = {"_INVALID_ARG", "_CONFLICT"}
_REFUSED_S = 10.0


class ConfluentConnection:
    """Address and login for one user's clients, and the last errors that can explain a time-out."""

    def __init__(self, address: str, security: KafkaSecurity) -> None:
        self._address = address
        self._security = security
        self._refused: tuple[Any, float] = None, 0.0
        self._cause: Any = None

    def options(self) -> dict[str, Any]:
        security = self._security
        options: dict[str, Any] = {
            "bootstrap.servers": ",".join(bootstrap_servers(self._address)),
            **connection_table(security),
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
        """Remember an error that can explain later ones. librdkafka calls this (``error_cb``) on
        the thread that polls the client.
        """
        if FAILURES.get(error.name()) is Failure.REFUSED:
            self._refused = error, clock.now_s()
        if error.name() in _TELLING:
            self._cause = error

    @property
    def refusal(self) -> Any:
        """The last refusal, of a login or a right; ``None`` if there was none within 10 s. One that
        lasts is told about once a second.
        """
        error, told_s = self._refused
        return error if clock.now_s() < told_s + _REFUSED_S else None

    def remedy(self) -> str:
        """Return advice for when no broker answers, with the last connection error, if any."""
        return advice(None if self._cause is None else self._cause.str())

    def made(self, kind: Callable[[dict[str, Any]], Any], options: dict[str, Any]) -> Any:
        """Return a client of class ``kind``. Raises ConfigurationError if it refuses an option of
        the user's.
        """
        try:
            return kind(options)
        except (KafkaException, TypeError, ValueError) as exc:
            why = exc
            if isinstance(exc, KafkaException):
                if exc.args[0].name() not in _UNUSABLE:
                    raise self.error(exc, "connecting") from exc
                why = exc.args[0].str()
            what = f"confluent-kafka cannot use an option of client_options: {why}"
            raise ConfigurationError(what) from exc

    def error(self, exc: Any, doing: str) -> LeaderqError:
        """Return leaderq's error for librdkafka's ``exc``: a ``KafkaException``, or a
        ``KafkaError`` (which is a value there, not an exception).
        """
        error = exc.args[0] if isinstance(exc, BaseException) and exc.args else exc
        name = error.name() if hasattr(error, "name") else type(exc).__name__
        failure = FAILURES.get(name)
        if failure is Failure.AWAY and (refusal := self.refusal) is not None:
            error, name, failure = refusal, refusal.name(), Failure.REFUSED
        if failure is None:
            is_away = hasattr(error, "retriable") and error.retriable() and not error.fatal()
            failure = Failure.AWAY if is_away else Failure.OTHER
        said = error.str() if hasattr(error, "str") else error
        return failure.error(f"{doing} at Kafka {self._address!r}: {name}: {said}")
