"""What every test under faults begins with: a topic, a feeder, and a maker of clusters on a
career's results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from feeding import PARTITIONS, Feeder, plain
from stores import HandledFiles, OutputTopic, PostgresTable, Results, SqliteTable

from leaderq.kafka.topics import create_topics


@pytest.fixture
def feeder(kafka_broker: Any, topic_name: str) -> Feeder:
    create_topics(kafka_broker.address, {topic_name: PARTITIONS})
    return Feeder(kafka_broker.address, topic_name, plain())


@pytest.fixture
def hold(tmp_path: Path) -> Path:
    """A folder: see ``careers/paced.py``."""
    (tmp_path / "hold").mkdir()
    return tmp_path / "hold"


@pytest.fixture
def results_of(
    kafka_broker: Any, topic_name: str, tmp_path: Path, request: Any
) -> Iterator[Callable[[str], Results]]:
    """An empty place for the results of a career that keeps its offsets in the store of this
    name.
    """
    with ExitStack() as cleanup:

        def make(store: str) -> Results:
            if store == "kafka":
                return HandledFiles(tmp_path / "handled")
            if store == "transaction":
                output = f"{topic_name}-output"
                create_topics(kafka_broker.address, {output: PARTITIONS})
                made = OutputTopic(kafka_broker.address, output, PARTITIONS)
                cleanup.callback(made.close)
                return made
            if store == "sqlite":
                return SqliteTable(tmp_path / "results.sqlite3")
            return PostgresTable(request.getfixturevalue("postgres"))

        yield make


@pytest.fixture
def a_cluster(
    zookeeper_server: Any, fault_proxy: Any, znode_root: str, topic_name: str, hold: Path
) -> Iterator[Callable[..., Cluster]]:
    """Three candidates whose results go where ``results_of`` said; stopped after the test."""
    with ExitStack() as cleanup:

        def make(results: Results, kafka: str, **more: Any) -> Cluster:
            environment = {
                "TOPIC": topic_name,
                "HOLD": str(hold),
                **results.environment,
                **more.pop("environment", {}),
            }
            made = Cluster(
                more.pop("target", results.target),
                career=topic_name,
                zookeeper=zookeeper_server.address,
                kafka=kafka,
                proxy=fault_proxy,
                root=znode_root,
                environment=environment,
                **more,
            )
            cleanup.callback(made.close)
            return made

        yield make
