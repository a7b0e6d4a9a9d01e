"""The servers that are supported, and how to have another version than the pinned one.

As a pytest plugin (``-p compat.versions``): all servers from jars are of the versions that
``COMPAT_ZOOKEEPER`` and ``COMPAT_KAFKA`` name.
"""

from __future__ import annotations

import os
from pathlib import Path

from leaderq.testing import jars

LOCK = Path(__file__).with_name("servers.lock")
SERVERS = [("3.6.4", "3.5.2"), ("3.8.4", "3.9.1"), ("3.9.5", "4.3.1")]
NEWEST = SERVERS[-1]  # the pinned ones

_LOG = "org.slf4j:slf4j-simple:1.7.36"
_METRICS = ("io.dropwizard.metrics:metrics-core:4.2.40", "org.xerial.snappy:snappy-java:1.1.10.8")
ROOTS: dict[str, tuple[str, ...]] = {}
for _zookeeper, _kafka in SERVERS[:-1]:
    ROOTS[f"zookeeper-{_zookeeper}"] = (
        f"org.apache.zookeeper:zookeeper:{_zookeeper}", *_METRICS, _LOG,
    )  # fmt: skip
    ROOTS[f"kafka-{_kafka}"] = (f"org.apache.kafka:kafka_2.13:{_kafka}", _LOG)

_pinned = jars.locked_jars


def use(**versions: str | None) -> None:
    """Let servers of this process be of these versions: ``use(zookeeper="3.6.4")``."""

    def locked(name: str) -> tuple[jars.LockedJar, ...]:
        return jars.read_lock(LOCK.read_text(), f"{name}-{versions.get(name)}") or _pinned(name)

    jars.locked_jars = locked


def pytest_configure() -> None:
    """As the environment says."""
    use(zookeeper=os.environ.get("COMPAT_ZOOKEEPER"), kafka=os.environ.get("COMPAT_KAFKA"))
