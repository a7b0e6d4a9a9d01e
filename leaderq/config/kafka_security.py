"""How to reach a Kafka cluster that does not take everybody: plain values, understood by ``leaderq.kafka``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class KafkaSecurity:
    """Transport and credentials of the Kafka client; the defaults are those of a cluster without any.

    ``protocol`` is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; ``mechanism`` is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512;
    ``ca``, ``cert`` and ``key`` are paths of PEM files.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
