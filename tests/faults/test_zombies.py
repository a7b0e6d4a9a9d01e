"""A leader frozen past its term, whose clock stood still meanwhile and which ZooKeeper cannot
reach: only a server can stop it.

In each store it thaws in the middle of a batch, believing that it leads, and goes on. What it
produces and commits is refused by the server; it demotes itself for that reason, goes back into the
line, and leads again when its turn comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cluster import PATIENCE_S, Cluster
from feeding import Feeder
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from stores import HandledFiles, OutputTopic, Results
from verdicts import exactly_once, repeated_at_changes_only, repetitions

from leaderq.election import View
from leaderq.testing.freezing import freeze
from leaderq.testing.waiting import patience

SUSPENDED = str(Path(__file__).parent / "suspended")
SHARE = 300


class Zombie:
    """One run: somebody leads, is frozen, thaws, and stands again."""

    def __init__(self, cluster: Cluster, results: Results, feeder: Feeder, hold: Path) -> None:
        self._cluster, self._results, self._feeder, self._hold = cluster, results, feeder, hold

    def freeze(self) -> View:
        """Freeze the leader in the middle of a batch, let another one work, and thaw it; gives the
        view of its term.
        """
        self._feeder.feed(SHARE).join()
        view = self._cluster.led()
        self._works(view.term)
        leader = self._cluster.candidates[view.leader]
        wish = self._hold / view.leader
        wish.touch()
        self._feeder.feed(SHARE).join()  # what was fed before may all have been handled by now
        self._cluster.eventually(
            (self._hold / f"{view.leader}.held").exists, "the leader is in the middle of a batch"
        )
        self._cluster.proxies[view.leader].black_hole()
        freeze(leader.worker_pid)
        try:
            self._cluster.succeeded(view)
            self._feeder.feed(SHARE).join()
            self._cluster.eventually(lambda: self._newest() > view.term, "the successor works")
        finally:
            wish.unlink()
            os.kill(leader.worker_pid, signal.SIGCONT)
        return view

    def is_deposed(self, view: View, reason: str) -> dict[str, Any]:
        """Until the zombie has ended its term for ``reason``; gives what it logged."""
        return self._cluster.candidates[view.leader].wait_for(
            "term_ended", reason=reason, term=view.term, timeout_s=30
        )

    def leads_again(self, view: View) -> None:
        """Let ZooKeeper reach it; it stands, is given the leadership, and works."""
        self._cluster.proxies[view.leader].heal()
        self._cluster.led()
        self._feeder.feed(SHARE).join()
        if self._cluster.led().leader != view.leader:
            self._cluster.operator.transfer(view.leader, timeout_s=PATIENCE_S * patience())
        self._feeder.feed(SHARE).join()
        newest = self._cluster.led()
        assert newest.leader == view.leader
        self._works(newest.term)

    def finish(self) -> None:
        """Until all records are handled; all candidates have stopped then."""
        places = lambda: {(one.partition, one.offset) for one in self._results.results()}  # noqa: E731
        self._cluster.eventually(
            lambda: len(places()) >= self._feeder.fed, "all records are handled"
        )
        self._cluster.close()

    def _works(self, term: int) -> None:
        self._cluster.eventually(lambda: self._newest() >= term, f"term {term} works")

    def _newest(self) -> int:
        return max((one.term for one in self._results.results()), default=0)


@pytest.fixture
def zombie(a_cluster: Any, kafka_broker: Any, feeder: Feeder, hold: Path) -> Callable[..., Zombie]:
    def make(results: Results, **more: Any) -> Zombie:
        path = os.pathsep.join(filter(None, [SUSPENDED, os.environ.get("PYTHONPATH")]))
        environment = {"PYTHONPATH": path, **more.pop("environment", {})}
        cluster = a_cluster(
            results,
            kafka_broker.address,
            environment=environment,
            session_timeout_s=3,
            # its clock, unlike a guardian's in the same machine, would not have stood still
            arguments=["--no-guardian"],
            **more,
        )
        return Zombie(cluster, results, feeder, hold)

    return make


def ends(feeder: Feeder) -> dict[int, int]:
    return {where.number: end for where, end in feeder.ends().items()}


def test_bug_22_a_zombies_commit_after_its_successors_first_read_is_refused(
    zombie, results_of, feeder
) -> None:
    results: HandledFiles = results_of("kafka")
    one: Zombie = zombie(results)
    view = one.freeze()
    one.is_deposed(view, "fenced")
    one.leads_again(view)
    one.finish()
    assert repeated_at_changes_only(results.handled(), ends(feeder)) == []
    assert repetitions(results.handled()) > 0  # the zombie's batch was its successor's too


def test_bug_22_a_plain_consumers_commit_is_accepted_after_its_successors(
    kafka_broker: Any, feeder: Feeder, topic_name
) -> None:
    """The control: where partitions are assigned by hand, the broker takes an offset from
    anybody.
    """
    where = TopicPartition(topic_name, 0)
    with ExitStack() as cleanup:

        def plain() -> KafkaConsumer:
            consumer = KafkaConsumer(
                bootstrap_servers=kafka_broker.address,
                group_id=topic_name,
                enable_auto_commit=False,
            )
            cleanup.callback(consumer.close)
            consumer.assign([where])
            return consumer

        zombie, successor = plain(), plain()
        zombie.commit({where: OffsetAndMetadata(20, "", -1)})
        assert successor.committed(where) == 20
        successor.commit({where: OffsetAndMetadata(50, "", -1)})
        zombie.commit({where: OffsetAndMetadata(70, "", -1)})
        assert successor.committed(where) == 70  # whoever leads next skips 20 records


def test_the_broker_refuses_what_a_zombie_produces_and_commits_in_a_transaction(
    zombie, results_of, feeder
) -> None:
    results: OutputTopic = results_of("transaction")
    one: Zombie = zombie(results, environment={"CLIENT": "confluent"})
    view = one.freeze()
    one.is_deposed(view, "fenced")
    one.leads_again(view)
    one.finish()
    assert exactly_once(results.all_results(), ends(feeder)) == []
