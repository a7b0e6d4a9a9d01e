"""The main job under every kind of change of leadership: 200,000 records, 20 changes, each record billed once and in order.

The nemesis kills, freezes, cuts off, transfers and stops leaders while records keep coming. The checker does not rest on Kafka's
offsets or on leaderq's own word: each record carries the number that its feeder gave it, the ledger says in which order and by which
term it was billed.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leaderq import Observer, connect
from leaderq.election import Operator, View
from leaderq.kafka.topics import committed, create_topics, end_offsets, produce
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from ad_billing.audit import audit, entries_of, reading
from ad_billing.feed import numbered
from ad_billing.traffic import generated

RECORDS = 200_000
CHANGES = 20
PARTITIONS = 4
CAREERS = Path(__file__).parent / "careers"


class Cluster:
    """Three candidates, each behind a fault proxy of its own, and a session that watches them."""

    def __init__(self, zookeeper: str, kafka: str, proxy: Callable, root: str, topic: str, ledger: Path) -> None:
        self._kafka, self._root = kafka, root
        self._environment = {"TOPIC": topic, "AD_BILLING_LEDGER": str(ledger)}
        self._proxies = {name: proxy(zookeeper) for name in ("a", "b", "c")}
        self.candidates: dict[str, CandidateProcess] = {}
        self.session = connect(zookeeper)
        self.observer = Observer(self.session, "billing", root=root)
        self.operator = Operator(self.session, "billing", root=root)
        for name in self._proxies:
            self.start(name)

    def start(self, name: str) -> None:
        self.candidates[name] = CandidateProcess(
            "billing_career:Billing",
            id=name,
            zookeeper=self._proxies[name].address,
            kafka=self._kafka,
            cwd=CAREERS,
            session_timeout_s=2,
            arguments=["--root", self._root, "--cool-off-s", "0.2"],
            environment=self._environment,
        ).start()

    def led(self) -> View:
        """The view once somebody executes and all three stand."""
        view = self.observer.wait_until(
            lambda seen: seen.stage == "execution" and len(set(seen.candidates)) == 3, timeout_s=40
        )
        assert view.stage == "execution", f"nobody leads: {view}\n" + self.last_words()
        return view

    def succeeded(self, before: View) -> None:
        """Until another term has begun."""
        view = self.observer.wait_until(lambda seen: seen.term > before.term, timeout_s=40)
        assert view.term > before.term, f"nobody succeeded {before}\n" + self.last_words()

    def eventually(self, fact: Callable[[], bool], message: str) -> None:
        try:
            eventually(fact, timeout_s=40, message=message)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.last_words()}") from None

    def last_words(self) -> str:
        return "\n".join(f"{name}: {line}" for name, one in self.candidates.items() for line in one.lines[-20:])

    def close(self) -> None:
        for candidate in self.candidates.values():
            candidate.stop()
        self.session.close()

    # ---- the nemesis ------------------------------------------------------------------------------------------------------

    def kill(self, view: View) -> None:
        os.kill(view.pid, signal.SIGKILL)
        self.succeeded(view)
        self.candidates[view.leader].wait()
        self.start(view.leader)

    def freeze(self, view: View) -> None:
        os.kill(view.pid, signal.SIGSTOP)
        self.succeeded(view)
        os.kill(view.pid, signal.SIGCONT)

    def cut_off(self, view: View) -> None:
        self._proxies[view.leader].black_hole()
        self.succeeded(view)
        self._proxies[view.leader].heal()

    def transfer(self, view: View) -> None:
        self.operator.transfer(view.candidates[-1], timeout_s=40)

    def step_down(self, view: View) -> None:
        self.operator.step_down(timeout_s=40)

    def stop(self, view: View) -> None:
        self.candidates[view.leader].terminate()
        self.succeeded(view)
        assert self.candidates[view.leader].wait() == 0
        self.start(view.leader)


class Feeder:
    """Produces numbered records in the background, a share at a time."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._records = numbered(generated(RECORDS))
        self.fed = 0

    def feed(self, count: int) -> threading.Thread:
        share = list(itertools.islice(self._records, count))

        def work() -> None:
            self.fed += produce(self._kafka, self._topic, share)

        thread = threading.Thread(target=work)
        thread.start()
        return thread


@pytest.fixture
def cluster(zookeeper_server, kafka_broker, fault_proxy, znode_root, topic_name, tmp_path) -> Iterator[Cluster]:
    create_topics(kafka_broker.address, {topic_name: PARTITIONS})
    made = Cluster(
        zookeeper_server.address, kafka_broker.address, fault_proxy, znode_root, topic_name, tmp_path / "ledger.sqlite3"
    )
    yield made
    made.close()


@pytest.mark.timeout(600)
def test_twenty_changes_of_every_kind_bill_each_of_200_000_records_once_and_in_order(
    cluster, kafka_broker, topic_name, tmp_path
):
    ledger = tmp_path / "ledger.sqlite3"
    faults = itertools.cycle(
        [cluster.kill, cluster.freeze, cluster.transfer, cluster.cut_off, cluster.kill, cluster.step_down, cluster.stop]
    )
    feeder = Feeder(kafka_broker.address, topic_name)
    first_term = cluster.led().term
    for fault in itertools.islice(faults, CHANGES):
        progress = billed(ledger)
        feeding = feeder.feed(RECORDS // CHANGES)
        view = cluster.led()
        cluster.eventually(lambda progress=progress: billed(ledger) > progress, "the leader bills")
        fault(view)
        feeding.join()
    last = cluster.led()
    assert feeder.fed == RECORDS
    assert last.term - first_term >= CHANGES
    eventually(lambda: billed(ledger) >= RECORDS, timeout_s=60, message="all records are billed")
    result = audit(entries_of(ledger), RECORDS)
    assert result.problems == []
    assert result.billed == RECORDS
    ends = end_offsets(kafka_broker.address, topic_name)
    eventually(lambda: committed(kafka_broker.address, "billing", topic_name) == ends, timeout_s=20)


def billed(ledger: Path) -> int:
    """How many bills stand in the ledger."""
    if not ledger.exists():
        return 0
    with closing(reading(ledger)) as connection:
        return connection.execute("SELECT COUNT(*) FROM billed").fetchone()[0]
