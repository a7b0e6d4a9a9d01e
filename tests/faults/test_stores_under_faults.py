"""Results in Kafka and in databases under every kind of fault, while records keep coming: each is
stored once. (Simulated drains have the other stores: ``tests/simulation/drain.py``.)

``LEADERQ_TEST_FAULTS`` says how many faults each store suffers (default 6, of ten kinds; ``make
faults``: 30). They are mixed by a seed, ``LEADERQ_TEST_SEED``, which is shown when a test fails.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from cluster import Cluster, Nemesis
from feeding import Feeder
from stores import OutputTopic, Results
from verdicts import Result, exactly_once

from leaderq.election import View
from leaderq.kafka.topics import committed

FAULTS = int(os.environ.get("LEADERQ_TEST_FAULTS", "6"))
SEED = int(os.environ.get("LEADERQ_TEST_SEED", random.randrange(10**6)))
SHARE = 400
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def endure(a_cluster: Any, feeder: Feeder, kafka_fault_proxy: Any) -> Callable[..., list[Result]]:
    """Let a career suffer; gives its results once all records are handled and all candidates have
    stopped.
    """

    def run(results: Results, **more: Any) -> list[Result]:
        print(f"LEADERQ_TEST_SEED={SEED} LEADERQ_TEST_FAULTS={FAULTS}")
        cluster: Cluster = a_cluster(results, kafka_fault_proxy.address, **more)
        for fault in faults(Nemesis(cluster, kafka_fault_proxy)):
            before = handled(results)
            feeding = feeder.feed(SHARE)
            cluster.eventually(lambda before=before: handled(results) > before, "the leader works")
            view = cluster.led(supervised=True)
            print(
                f"term {view.term} of {view.leader}: {fault.__name__}, {handled(results)} handled"
            )
            fault(view)
            feeding.join()
        cluster.led(supervised=True)
        cluster.eventually(lambda: handled(results) >= feeder.fed, "all records are handled")
        cluster.close()
        return results.all_results() if isinstance(results, OutputTopic) else results.results()

    return run


def faults(nemesis: Nemesis) -> list[Callable[[View], None]]:
    """Each kind as often as the others, in an order of the seed's."""
    order = random.Random(SEED)
    rounds = iter(lambda: order.sample(nemesis.faults, len(nemesis.faults)), None)
    return list(islice((fault for each in rounds for fault in each), FAULTS))


def handled(results: Results) -> int:
    """How many records have been handled at least once."""
    return len({(one.partition, one.offset) for one in results.results()})


def numbered(feeder: Feeder) -> dict[int, int]:
    return {where.number: end for where, end in feeder.ends().items()}


@pytest.mark.parametrize(("client", "workers"), [("kafka-python", "3"), ("confluent", "1")])
def test_a_read_committed_consumer_sees_the_result_of_each_record_exactly_once(
    endure, results_of, feeder, kafka_broker, topic_name, client, workers
) -> None:
    found = endure(
        results_of("transaction"),
        environment={"CLIENT": client, "WORKERS": workers, "FLAKY": "0.05"},
    )
    ends = numbered(feeder)
    assert exactly_once(found, ends) == []
    assert committed(kafka_broker.address, topic_name, topic_name) == ends


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_results_stored_with_the_offsets_are_stored_exactly_once(
    endure, results_of, feeder, store
) -> None:
    found = endure(results_of(store), environment={"FLAKY": "0.05"})
    assert exactly_once(found, numbered(feeder)) == []


def test_batches_that_are_abandoned_at_any_instruction_are_stored_exactly_once(
    endure, results_of, feeder
) -> None:
    found = endure(results_of("sqlite"), target="database_career:Abandoned")
    assert exactly_once(found, numbered(feeder)) == []
