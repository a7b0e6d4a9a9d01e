"""The settings given to librdkafka's consumer, each with its reason."""

from __future__ import annotations

from typing import Any

from leaderq.kafka.clients.confluent_options import Heard, connection_options
from leaderq.kafka.clients.drain import DrainSettings


def consumer_options(settings: DrainSettings, heard: Heard) -> dict[str, Any]:
    """What the consumer is made with."""
    session_ms = int(settings.session_timeout_s * 1000)
    options = {
        **connection_options(settings.address, settings.security, heard),
        "client.id": settings.client_id,
        "group.id": settings.group,
        "group.protocol": "classic",  # the newer one fences the newcomer instead of the old member
        "partition.assignment.strategy": "range",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Also makes OffsetFetch ask for stable offsets only, and ListOffsets for the last stable
        # one.
        "isolation.level": "read_committed",
        # Any other value would jump silently when the offset to read on from is gone; leaderq
        # decides that.
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": min(3000, session_ms // 3),
        "max.poll.interval.ms": max(session_ms, int(settings.max_poll_interval_s * 1000)),
        "socket.timeout.ms": int(settings.request_timeout_s * 1000),
        "topic.metadata.refresh.interval.ms": 30_000,
        "enable.partition.eof": True,
        # A fetch that waits for quiet partitions holds up a busy one on the same broker (500 ms by
        # default).
        "fetch.wait.max.ms": 50,
        # How long fetching rests when enough is prefetched; at the default of 1 s a fast reader
        # runs dry in between.
        "fetch.queue.backoff.ms": 10,
    }
    if settings.membership:
        options["group.instance.id"] = settings.member
    return options
