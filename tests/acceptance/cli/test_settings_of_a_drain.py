"""What is set for one Kafka career in ``leaderq.toml``: shown, and obeyed by ``leaderq run``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderq.kafka.topics import create_topics, produce
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess

COUNT = 60
DRAIN = """
import os, time
from leaderq import KafkaLeaderCareer

class Drain(KafkaLeaderCareer):
    topics = group = {topic!r}

    def handle(self, records, term):
        with open("sizes.txt", "a") as file:
            print(len(records), file=file)
        if os.environ.get("HANGS"):
            time.sleep(600)
"""


@pytest.fixture
def topic(kafka_broker: Any, topic_name: str, folder: Path) -> str:
    create_topics(kafka_broker.address, {topic_name: 1})
    produce(kafka_broker.address, topic_name, ((b"k", b"x") for _ in range(COUNT)))
    (folder / "drain.py").write_text(DRAIN.format(topic=topic_name))
    return topic_name


@pytest.fixture
def candidate(
    kafka_broker: Any, zookeeper_server: Any, root: str, folder: Path, environment: Any
) -> Callable[..., CandidateProcess]:
    """A process that leads the career, to be started."""

    def make(id: str, *arguments: str, **variables: str) -> CandidateProcess:
        return CandidateProcess(
            "drain:Drain",
            id=id,
            zookeeper=zookeeper_server.address,
            kafka=kafka_broker.address,
            cwd=folder,
            arguments=["--root", root, *arguments],
            environment={**environment(), **variables},
        )

    return make


def handled(folder: Path) -> list[int]:
    """The sizes of the batches so far."""
    path = folder / "sizes.txt"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_handler_that_hangs_ends_its_term_and_another_candidate_does_its_work(
    folder: Path, topic: str, candidate: Callable[..., CandidateProcess]
) -> None:
    budgets = "--handle-budget-s", "0.5", "--handover-budget-s", "0.5"
    with candidate("hanging", *budgets, HANGS="1") as hanging:
        hanging.wait_for("term_ending", reason="health")
        assert hanging.wait() == 4  # the thread that hangs cannot be ended otherwise
    assert hanging.said("budget_missed", stage="hand-over")
    why = [line["message"] for line in hanging.lines if "over its budget" in line["message"]]
    assert "career=drain handle_budget_s=0.5 running=handle has been called for" in why[0]
    assert f"from {topic}-0@0" in why[0]
    before = len(handled(folder))
    with candidate("next", *budgets):
        eventually(lambda: sum(handled(folder)[before:]) >= COUNT, timeout_s=60)
