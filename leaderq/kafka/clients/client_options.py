"""The settings given to kafka-python, each with its reason."""

from __future__ import annotations

import logging
from typing import Any

from leaderq.config import KafkaSecurity
from leaderq.kafka.clients.address import bootstrap_servers
from leaderq.kafka.clients.drain import DrainSettings
from leaderq.kafka.clients.tls import tls_options

# How long a broker may keep a fetch open that finds nothing. One fetch is in flight per broker:
# while it waits for records of quiet partitions, a busy partition on the same broker cannot be
# fetched, and one hot partition among quiet ones is read at 4 MB/s (kafka-python's default, 500
# ms). Short waits cost a leader without work 2 % of a core more. Hence both.
BUSY_FETCH_MS, QUIET_FETCH_MS = 10, 500


def connection_options(address: str, security: KafkaSecurity, *, open_timeout_s: float = 10.0) -> dict[str, Any]:
    """What consumer, producer and admin client share: where to connect, and how to be let in."""
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers(address),
        "bootstrap_timeout_ms": int(open_timeout_s * 1000),
        "security_protocol": security.protocol,
        # Up to 30 s between attempts is the default: a leader would sleep through the broker's
        # return.
        "reconnect_backoff_ms": 20,
        "reconnect_backoff_max_ms": 1000,
        # Paces every wait for a coordinator, a leader or a marker; 100 ms by default, far above
        # what a broker needs.
        "retry_backoff_ms": 20,
    }
    if security.protocol.startswith("SASL_"):
        options.update(
            sasl_mechanism=security.mechanism, sasl_plain_username=security.user, sasl_plain_password=security.password
        )
    options.update(tls_options(security))
    return options


def consumer_options(settings: DrainSettings) -> dict[str, Any]:
    """What a consumer that drains as a static member is made with."""
    return {
        **connection_options(settings.address, settings.security, open_timeout_s=settings.open_timeout_s),
        "client_id": settings.client_id,
        "metrics_enabled": False,  # costs time at every fetch, and nobody reads it
        "group_id": settings.group,
        "group_instance_id": settings.member if settings.membership else None,
        "enable_auto_commit": False,
        # Also makes OffsetFetch ask for stable offsets only: a zombie's open transaction is waited
        # for, not overlooked.
        "isolation_level": "read_committed",
        # Any other value would jump silently when the offset to read on from is gone; leaderq
        # decides that.
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,  # an unknown topic is an error here, not a wish
        "session_timeout_ms": int(settings.session_timeout_s * 1000),
        "heartbeat_interval_ms": min(3000, int(settings.session_timeout_s * 1000 / 3)),
        "max_poll_interval_ms": int(settings.max_poll_interval_s * 1000),
        "request_timeout_ms": int(settings.request_timeout_s * 1000),
        "fetch_max_wait_ms": BUSY_FETCH_MS,
        "metadata_max_age_ms": 10_000,  # how long a new partition may go unnoticed
    }


def _no_debug_lines(line: logging.LogRecord) -> bool:
    return line.levelno > logging.DEBUG


def quiet_client_logs() -> None:
    """Silence kafka-python's own loggers, unless the program has given ``kafka`` a level.

    It reports each failed attempt as an error, several times a second while a broker is away; what
    matters of it leaderq raises or logs itself. ``logging.getLogger("kafka").setLevel("INFO")``
    brings them back. The debug lines of two of them contain every request as it is sent, passwords
    too, and are never let out unless that very logger was given a level.
    """
    for name in ("kafka.protocol.parser", "kafka.net.connection"):
        spilling = logging.getLogger(name)
        if spilling.level == logging.NOTSET:
            spilling.addFilter(_no_debug_lines)
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
