"""Which of a client library's own options a user may set, and why not the others.

A career has ``client_options``, a :class:`~leaderq.kafka.sink.KafkaSink` has ``options``: names and
values as the library has them, on top of what leaderq sets. A consumer is given those that
consumers have, a producer those that producers have. The library itself checks the *values* when it
connects, and librdkafka also checks the names; kafka-python would find out later that a number is
none, and not say which.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from leaderq.base import clock
from leaderq.config import KafkaSecurity
from leaderq.config.kinds import InvalidValue, addresses
from leaderq.errors import ConfigurationError
from leaderq.kafka.clients.consumer import ConsumerSettings
from leaderq.kafka.clients.producer import ProducerSettings

Options = Mapping[str, Any]


class ClientLibrary(str, Enum):
    """The client libraries; the value is what users write."""

    KAFKA_PYTHON = "kafka-python"
    CONFLUENT = "confluent"


REFUSED: Mapping[str, str] = {
    "the settings say where Kafka is and how to be let in: kafka, kafka_protocol, kafka_mechanism,"
    " kafka_ca, ...": (
        "bootstrap_servers metadata_broker_list security_protocol sasl_mechanism* sasl_plain_*"
        " sasl_username sasl_password ssl_context ssl_check_hostname ssl_cafile ssl_certfile"
        " ssl_keyfile ssl_password ssl_ca_* ssl_certificate_* ssl_key_* ssl_keystore_*"
        " ssl_endpoint_* enable_ssl_certificate_verification"
    ),
    "name the group with the career's group": "group_id",
    "the career's name is the member's, so that a new leader fences the former one": (
        "group_instance_id"
    ),
    "a leader takes all partitions, and how it fences the former one depends on it": (
        "partition_assignment_strategy group_protocol group_remote_assignor"
    ),
    "leaderq commits, and only what was handled": (
        "enable_auto_commit auto_commit_* default_offset_commit_callback enable_auto_offset_store"
        " offset_store_* on_commit"
    ),
    "what a transaction has aborted must not be handled": "isolation_level",
    "nothing is skipped silently; the career's auto_offset_reset says where to begin": (
        "auto_offset_reset"
    ),
    "a record that was altered on the way must not be handled": "check_crcs",
    "the career's max_records says how many": "max_poll_records",
    "a slow handle loses no membership; handle_budget_s ends the term of one that hangs": (
        "max_poll_interval_ms"
    ),
    "set key_deserializer and value_deserializer of the career; what cannot be decoded is then"
    " judged by on_error": "key_deserializer value_deserializer",
    "a topic that is not there is an error, not a wish": "allow_auto_create_topics",
    "leaderq changes it as records come, or depends on it": (
        "fetch_max_wait_ms consumer_timeout_ms exclude_internal_topics enable_partition_eof"
        " topic_blacklist"
    ),
    "what counts as sent is stored by all replicas in sync": "acks request_required_acks",
    "each message is stored once, and in order": (
        "enable_idempotence retries max_in_flight* enable_gapless_guarantee"
        " message_send_max_retries"
    ),
    "a leader fences former ones by it, and the time-out belongs to that": (
        "transactional_id transaction_timeout_ms"
    ),
    "a key must go to the same partition whatever the client": (
        "partitioner sticky_partitioning_*"
    ),
    "what is sent is bytes; encode it before": "key_serializer value_serializer",
    "set max_message_bytes": "max_request_size message_max_bytes",
    "leaderq bounds its waits by its own time-outs": (
        "max_block_ms delivery_timeout_ms bootstrap_timeout_ms message_timeout_ms"
    ),
    "leaderq makes the connections itself, as the client loses data and sockets otherwise": (
        "kafka_client proxy_url socks5_proxy selector test_mock_* plugin_library_paths"
    ),
    "leaderq learns of failures by it": (
        "error_cb log_queue delivery_report_only_error dr_cb dr_msg_cb on_delivery"
        " metadata_recovery_strategy default_topic_config"
    ),
}
"""The options that only leaderq may set, by reason: under kafka-python's names, and librdkafka's
with ``_`` for each dot.
"""


_CONSUMER = frozenset(KafkaConsumer.DEFAULT_CONFIG)
_PRODUCER = frozenset(KafkaProducer.DEFAULT_CONFIG)
_DEFAULTS = {**KafkaProducer.DEFAULT_CONFIG, **KafkaConsumer.DEFAULT_CONFIG}
_SHARED = frozenset(KafkaAdminClient.DEFAULT_CONFIG) & _CONSUMER & _PRODUCER


def option_problems(client: ClientLibrary, options: Options, what: str) -> Iterator[str]:
    """Yield one sentence for each problem of ``options``, which the sentence calls ``what``."""
    for name in options:
        if (because := _refusal(name)) is not None:
            yield f"{name!r} cannot be set in {what}: {because}"
        elif client is ClientLibrary.KAFKA_PYTHON and name not in _CONSUMER | _PRODUCER:
            near = difflib.get_close_matches(name.replace(".", "_"), _CONSUMER | _PRODUCER, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else "remove it"
            yield f"{name!r} in {what} is not an option of kafka-python; {remedy}"
        elif client is ClientLibrary.KAFKA_PYTHON and type(_DEFAULTS[name]) is int:
            kinds = int | float if name.endswith("_ms") else int
            if not isinstance(options[name], kinds) or isinstance(options[name], bool):
                yield f"{name!r}: {options[name]!r} in {what} is not a whole number; give one"


def _refusal(name: str) -> str | None:
    plain = name.replace(".", "_")
    for because, names in REFUSED.items():
        if any(fnmatchcase(plain, each) for each in names.split()):
            return because
    return None


def for_client(kind: Any, options: Options) -> dict[str, Any]:
    """Return those of ``options`` that kafka-python's client class ``kind`` has."""
    return {name: options[name] for name in kind.DEFAULT_CONFIG if name in options}


def for_all_clients(client: ClientLibrary, options: Options) -> dict[str, Any]:
    """Return the options for kafka-python's clients outside the draining. For a career that uses
    librdkafka these are only its tokens (``oauth_cb``).
    """
    if client is ClientLibrary.KAFKA_PYTHON:
        return {name: options[name] for name in _SHARED if name in options}
    if (callback := options.get("oauth_cb")) is None:
        return {}
    tokens = CallbackTokens(callback, str(options.get("sasl.oauthbearer.config", "")))
    return {"sasl_oauth_token_provider": tokens}


class CallbackTokens(AbstractTokenProvider):
    """Gives kafka-python the tokens of librdkafka's ``oauth_cb``. A token is used until 10 s before
    it expires; then the callback is asked again.
    """

    _MARGIN_S = 10.0

    def __init__(self, callback: Callable[[str], Any], config: str) -> None:
        self._callback = callback
        self._config = config
        self._until_s = 0.0
        self._token = ""
        self._extensions: Mapping[str, str] = {}

    def token(self) -> str:
        if clock.calendar_s() > self._until_s - self._MARGIN_S:
            self._token, self._until_s, *more = self._callback(self._config)
            self._extensions = more[1] if len(more) > 1 else {}
        return self._token

    def extensions(self) -> Mapping[str, str]:
        return self._extensions


# ---- what both libraries are told, under librdkafka's names --------------------------------------


def connection_table(security: KafkaSecurity) -> Options:
    return {
        "security.protocol": security.protocol,
        # 10 or 30 s between attempts by default: a leader would sleep through the broker's return.
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 1000,
        # Paces every wait for a coordinator, a leader or a marker; 100 ms by default.
        "retry.backoff.ms": 20,
    }


def consumer_table(settings: ConsumerSettings) -> Options:
    session_ms = int(settings.session_timeout_s * 1000)
    member = {"group.instance.id": settings.member} if settings.membership else {}
    return {
        "client.id": settings.client_id,
        "group.id": settings.group,
        **member,
        "enable.auto.commit": False,
        # Also makes OffsetFetch wait for a zombie's open transaction (B4), and ListOffsets ask for
        # the last stable offset.
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,  # an unknown topic is an error here, not a wish
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": min(3000, session_ms // 3),
        "max.poll.interval.ms": max(session_ms, int(settings.max_poll_interval_s * 1000)),
    }


def producer_table(settings: ProducerSettings) -> Options:
    options = {"client.id": settings.client_id, "enable.idempotence": True}
    if settings.transactional_id is None:
        return options
    timeout_ms = int(settings.transaction_timeout_s * 1000)
    # A broker still writes the markers of a transaction when the next one begins (B6).
    in_transactions = {"transaction.timeout.ms": timeout_ms, "retry.backoff.ms": 5}
    return {**options, "transactional.id": settings.transactional_id, **in_transactions}


def in_kafka_pythons_names(table: Options) -> dict[str, Any]:
    return {name.replace(".", "_"): value for name, value in table.items()}


_ADDRESS = addresses(9092)


def bootstrap_servers(address: str) -> list[str]:
    """Return ``address`` as a list of ``host:port`` (port 9092 if left out). Raises
    ConfigurationError if it is malformed.
    """
    try:
        return str(_ADDRESS.check(address)).split(",")
    except InvalidValue as exc:
        what = f"the Kafka address {address!r} (--kafka, LEADERQ_KAFKA)"
        raise ConfigurationError(f"{what} {exc}") from exc
