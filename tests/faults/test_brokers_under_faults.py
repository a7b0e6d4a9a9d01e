"""The broker itself is killed, frozen and brought back, alone and together with a leader: exactly
once all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from cluster import Cluster, Nemesis
from feeding import Feeder
from own_broker import own_broker  # noqa: F401  (the fixture kafka_broker)
from stores import HandledFiles, OutputTopic
from verdicts import exactly_once, repeated_at_changes_only

from leaderq.election import View
from leaderq.term import Reason

pytestmark = pytest.mark.timeout(600)


class Brokers:
    """What befalls the broker."""

    def __init__(self, broker: Any, cluster: Cluster) -> None:
        self._broker = broker
        self._cluster = cluster
        self._nemesis = Nemesis(cluster)

    def restart(self, view: View) -> None:
        """Kill the broker and start it on the same data; the leader does not lose its term for
        that.
        """
        leader = self._cluster.candidates[view.leader or ""]
        self._broker.kill()
        self._broker.start()
        newest = self._cluster.led(supervised=True)
        reasons = {line["reason"] for line in leader.said("term_ended", term=view.term)}
        # a machine that let it sleep too long does that
        lost = reasons - {Reason.SESSION.value, Reason.LEASE.value}
        assert newest.term == view.term or (reasons and not lost), (
            f"it ended for {reasons}\n" + self._cluster.last_words()
        )

    def restart_and_kill(self, view: View) -> None:
        """Kill broker and leader together."""
        self._broker.kill()
        self._nemesis.kill(view)
        self._broker.start()

    def freeze(self, view: View) -> None:
        """Freeze the broker for longer than a lease."""
        self._broker.freeze()
        threading.Event().wait(3.0)  # how long it is frozen: the fault itself, no fact to wait for
        self._broker.thaw()

    def freeze_in_transfer(self, view: View) -> None:
        """Freeze the broker, and let the leadership change hands meanwhile."""
        self._broker.freeze()
        thaw = threading.Timer(2.0, self._broker.thaw)
        thaw.start()
        self._nemesis.transfer(view)
        thaw.join()


@pytest.mark.parametrize(
    ("store", "client"),
    [("kafka", "kafka-python"), ("transaction", "kafka-python"), ("transaction", "confluent")],
)
def test_records_are_handled_as_promised_whatever_befalls_the_broker(
    a_cluster: Callable[..., Cluster],
    results_of: Callable[[str], Any],
    feeder: Feeder,
    kafka_broker: Any,
    store: str,
    client: str,
) -> None:
    if client == "confluent":
        pytest.importorskip("confluent_kafka")
    results = results_of(store)
    cluster = a_cluster(results, kafka_broker.address, environment={"CLIENT": client})
    brokers = Brokers(kafka_broker, cluster)

    def handled() -> int:
        return len({(one.partition, one.offset) for one in results.results()})

    for fault in (
        brokers.restart,
        brokers.restart_and_kill,
        brokers.freeze,
        brokers.freeze_in_transfer,
    ):
        before = handled()
        feeder.feed(300).join()
        cluster.eventually(lambda before=before: handled() > before, "the leader works")
        fault(cluster.led(supervised=True))
    cluster.led(supervised=True)
    cluster.eventually(lambda: handled() >= feeder.fed, "all records are handled")
    cluster.close()
    ends = {where.number: end for where, end in feeder.ends().items()}
    if isinstance(results, HandledFiles):
        assert repeated_at_changes_only(results.handled(), ends) == []
    else:
        found = results.all_results() if isinstance(results, OutputTopic) else results.results()
        assert exactly_once(found, ends) == []
