"""What a scrape of a deep queue costs: the servers count its items, and nobody lists them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leaderq.dyno import DynoQueue, Message
from leaderq.observability import figures
from leaderq.observability.figures import FigureSource, read_figures
from leaderq.observability.metrics import Metrics
from leaderq.queues import DistributedQueue
from leaderq.testing import eventually
from leaderq.zookeeper import Session

prometheus_client: Any = pytest.importorskip("prometheus_client", reason="needs leaderq[metrics]")
MANY = 1_000


def deep_queue(session: Session) -> DistributedQueue[bytes]:
    queue = DistributedQueue(session, "/q")
    queue.start()
    queue.put_many([b"item %d" % number for number in range(MANY + 1)])
    with queue.take():  # a consumer here has seen them all
        pass
    return queue


def deep_dyno(session: Session) -> DynoQueue:
    queue = DynoQueue(session, "/q", shards=["s"])
    queue.push([Message(payload=b"%d" % number) for number in range(MANY + 1)])
    queue.pop(1, 30)[0].ack()
    return queue


@pytest.fixture
def sent(session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requests of this session, as text."""
    told: list[str] = []
    send_all = session._send_all

    def noting(requests: Any, *more: Any) -> Any:
        told.extend(map(repr, requests))
        return send_all(requests, *more)

    monkeypatch.setattr(figures, "_offers", [])
    monkeypatch.setattr(figures, "_DEPTHS_S", 0.1)
    monkeypatch.setattr(session, "_send_all", noting)
    yield told


@pytest.mark.parametrize("made", [deep_queue, deep_dyno])
def test_a_scrape_of_a_deep_queue_lists_none_of_its_items(made, session, sent):
    registry = prometheus_client.CollectorRegistry()
    registry.register(Metrics())

    def ready() -> float | None:
        found: float | None = registry.get_sample_value(
            "leaderq_queue_ready_items", {"queue": "/q"}
        )
        return found

    with made(session):
        assert (FigureSource.QUEUE, "/q") in read_figures()
        eventually(lambda: ready() == MANY)  # asked once, and looked at by the queue's own thread
        sent.clear()
        text = prometheus_client.generate_latest(registry).decode()
        assert sent == []
        assert len([line for line in text.splitlines() if 'queue="/q"' in line]) < 30
        assert "item 1" not in text
        figures_of = [one for one in figures._offers if one[1] == "/q"]
        noted = [one[2]()._noted_s for one in figures_of]
        eventually(lambda: [one[2]()._noted_s for one in figures_of] != noted)
    listed = [one for one in sent if ("GetChildren" in one and "messages" in one) or "'/q'" in one]
    assert not [one for one in listed if "GetChildren" in one], listed
