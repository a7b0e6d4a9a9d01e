"""Probes, status and metrics of runners on a real ZooKeeper, as what they tell changes."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from leaderq import LeaderCareer, Runner, connect
from leaderq.config import Settings
from leaderq.election import Operator
from leaderq.errors import LeaderqError
from leaderq.events import EventBus
from leaderq.observability.health import Health
from leaderq.observability.http import HttpEndpoint, health_routes
from leaderq.observability.metrics import Metrics
from leaderq.testing import eventually
from leaderq.testing.waiting import patience

PATHS = ("/livez", "/readyz", "/leader")


class Job(LeaderCareer):
    name = "job"

    def execute(self, term) -> None:
        term.wait(0.01)


class Failing(Job):
    def execute(self, term) -> None:
        raise ValueError("no such table")


class Served:
    """A runner on a thread of its own, and its endpoint."""

    def __init__(self, career: LeaderCareer, address: str, root: str, id: str, **more) -> None:
        self.session = connect(address, timeout_s=more.pop("timeout_s", 20.0))
        events = EventBus()
        settings = Settings(root=root, id=id, **{"cool_off_s": 0.1, **more})
        self.runner = Runner(career, self.session, settings=settings, events=events)
        self._endpoint = HttpEndpoint("127.0.0.1:0")
        health = Health(events, self.runner.look)
        metrics = Metrics(health)
        self._endpoint.start({**health_routes(health), "/metrics": metrics.route(self._registry())})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @staticmethod
    def _registry():
        with suppress(ImportError):
            from prometheus_client import CollectorRegistry

            return CollectorRegistry()

    def _run(self) -> None:
        with suppress(LeaderqError):  # a candidate that a test has broken
            self.runner.run()

    def get(self, path: str) -> tuple[int, str]:
        url = f"http://{self._endpoint.address}{path}"
        try:
            with urllib.request.urlopen(url, timeout=30 * patience()) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as reply:
            with reply:
                return reply.code, reply.read().decode()

    def status(self) -> dict:
        return json.loads(self.get("/status")[1])

    def becomes(self, live: int, ready: int, leader: int, why: str = "") -> None:
        """Wait for these answers, and for ``why`` as the reason of one of them."""

        def answered() -> bool:
            found = [self.get(path) for path in PATHS]
            right = [status for status, _ in found] == [live, ready, leader]
            return right and any(why in text for _, text in found)

        eventually(answered, timeout_s=60, message=f"{self.runner.look()}")

    def metric(self, name: str) -> float:
        """The value of the line that begins with ``name`` behind our prefix."""
        status, text = self.get("/metrics")
        if status == 501:
            pytest.skip("needs leaderq[metrics]")
        found = [line for line in text.splitlines() if line.startswith(f"leaderq_{name} ")]
        return float(found[0].split()[-1]) if found else float("nan")

    def stop(self) -> None:
        self.runner.stop()
        self._thread.join(60 * patience())
        self._endpoint.stop()
        self.session.close()


@pytest.fixture
def serve(zookeeper_server, znode_root) -> Iterator[Callable[..., Served]]:
    started: list[Served] = []

    def begin(career: LeaderCareer, id: str = "a", **more) -> Served:
        address = more.pop("address", zookeeper_server.address)
        started.append(Served(career, address, znode_root, id, **more))
        return started[-1]

    yield begin
    for served in started:
        served.stop()


def test_a_follower_is_ready_and_leads_when_the_leadership_is_transferred(serve, znode_root):
    a = serve(Job())
    a.becomes(200, 200, 200)
    b = serve(Job(), id="b")
    b.becomes(200, 200, 503, "not leader: it does not lead")
    assert (a.metric('leader{career="job"}'), b.metric('leader{career="job"}')) == (1, 0)
    Operator(b.session, "job", root=znode_root).transfer("b")
    b.becomes(200, 200, 200)
    a.becomes(200, 200, 503)
    status = a.status()
    assert (status["role"], status["term"]) == ("waiting", None)
    last = status["last_term"]
    assert (last["number"], last["reason"], last["clean"]) == (1, "transfer", True)
    assert (b.status()["term"]["number"], b.status()["term"]["stage"]) == (2, "execution")
    assert a.metric('term_ends_total{career="job",reason="transfer"}') == 1
    for stage in ("inauguration", "execution", "hand-over"):
        name = f'stage_duration_seconds_count{{career="job",stage="{stage}"}}'
        assert a.metric(name) == 1
    assert a.metric('units_total{career="job"}') > 0
    assert 2 < b.metric('lease_margin_seconds{career="job"}') <= 20 * 2 / 3


def test_a_career_that_fails_is_live_and_not_ready_and_its_status_says_why(serve):
    a = serve(Failing(), cool_off_s=600.0, yield_s=600.0)
    a.becomes(200, 503, 503, "not ready: it cools off after a failed term, ")
    status = a.status()
    assert status["cool_off"]["failures"] == 1
    assert (status["last_term"]["reason"], status["last_term"]["error"]) == ("failed", "ValueError")
    assert a.metric('career_errors_total{career="job",stage="execution"}') == 1
    assert a.metric('cool_offs_total{career="job"}') == 1
