"""What ``/metrics`` says of a career that drains."""

from __future__ import annotations

import threading
import urllib.request
from typing import Any

import pytest
from driving import Recorder

from leaderq import Runner
from leaderq.config import Settings
from leaderq.kafka import KafkaLeaderCareer, dead_letter
from leaderq.observability.health import Health
from leaderq.observability.http import HttpEndpoint
from leaderq.observability.metrics import Metrics
from leaderq.testing import eventually


class Refusing(Recorder):
    """Cannot handle one of its records."""

    handle = KafkaLeaderCareer.handle

    def handle_record(self, record: Any, term: Any) -> None:
        if record.value == b"7":
            raise ValueError("seven")
        self.seen.append(record)


def test_metrics_tell_what_was_handled_committed_set_aside_and_is_left(
    kafka_broker, four_partitions, feed, session, znode_root
):
    client = pytest.importorskip("prometheus_client", reason="needs leaderq[metrics]")
    feed(0, 500)
    declared = {
        "topics": four_partitions,
        "name": four_partitions,
        "on_error": dead_letter(),
        "max_records": 50,
    }
    career: Any = type("Refusing", (Refusing,), declared)()
    settings = Settings(kafka=kafka_broker.address, root=znode_root)
    runner = Runner(career, session, settings=settings)
    metrics = Metrics(Health(runner.events, runner.look))
    thread = threading.Thread(target=runner.run)
    with HttpEndpoint("127.0.0.1:0") as endpoint:
        endpoint.start({"/metrics": metrics.route(client.CollectorRegistry())})

        def told() -> dict[str, float]:
            with urllib.request.urlopen(f"http://{endpoint.address}/metrics", timeout=60) as reply:
                lines = [line for line in reply.read().decode().splitlines() if line[0] != "#"]
            mine = (line.rsplit(" ", 1) for line in lines if f'career="{four_partitions}"' in line)
            return {name.removeprefix("leaderq_kafka_"): float(value) for name, value in mine}

        thread.start()
        try:
            here = f'{{career="{four_partitions}"}}'
            lag = f'lag_records{{career="{four_partitions}",topic="{four_partitions}"}}'
            dead = f'poison_records_total{{action="dead-letter",career="{four_partitions}"}}'
            eventually(
                lambda: told().get(f"records_total{here}") == 499,
                timeout_s=60,
                message="all but one were handled",
            )
            eventually(lambda: told().get(lag) == 0, timeout_s=60, message="nothing is left")
            found = told()
        finally:
            runner.stop()
            thread.join()
    assert len(career.seen) == 499
    assert found[dead] == 1
    # one more around the dead letter
    assert 10 <= found[f"batches_total{here}"] < found[f"commits_total{here}"]
    assert 0 < found[f"commit_seconds_total{here}"] < 60
