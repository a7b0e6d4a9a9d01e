"""The page about metrics, on careers that really run: every panel of Grafana's dashboard has series
in Prometheus, and every rule is read.
"""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from snippets import ROOT, blocks, commands

from leaderq.cli import main
from leaderq.kafka.topics import create_topics, produce
from leaderq.observability.alerts import ALERTS
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.ports import lease_port

PAGE, EXAMPLES = ROOT / "docs" / "metrics.rst", ROOT / "examples"
needed = "needs Debian's package prometheus"
pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason=needed)
CAREERS = """
import sys
sys.path.insert(0, {examples!r})
from ad_billing.billing import AdBilling
from leaderq import ScheduledCareer, schedule
from leaderq.producing import BufferedProducer
from leaderq.producing.sinks import CallableSink
from leaderq.queues import DistributedQueue

class Billing(AdBilling):
    topics = {topic!r}

class Mailing(ScheduledCareer):
    def inaugurate(self, term):
        self.sent = BufferedProducer(CallableSink(lambda mails: None), name="mails")
        self.mails = DistributedQueue(
            self.session, "/" + {topic!r}, consumer=self.sent.send, lock_path="/locks-" + {topic!r}
        )
        self.mails.start()

    @schedule(every_s=1)
    def write(self, tick):
        self.mails.put(b"a mail")

    def handOver(self, term):
        self.mails.close()
        self.sent.close()
"""
OFTEN = "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
"""Every minute is Prometheus' default."""
Ask = Callable[[str], Any]


@pytest.fixture
def candidates(start, kafka_broker, topic_name, tmp_path) -> Iterator[dict[str, CandidateProcess]]:
    """The careers of the demo and one with a queue, a schedule and a producer, in two processes;
    by the address of their metrics.
    """
    create_topics(kafka_broker.address, {topic_name: 2})
    (tmp_path / "careers.py").write_text(CAREERS.format(examples=str(EXAMPLES), topic=topic_name))
    found: dict[str, CandidateProcess] = {}
    with ExitStack() as stack:
        for id in "ab":
            port = lease_port()
            stack.callback(port.release)
            found[port.address] = start(
                "careers:Billing",
                id=id,
                kafka=kafka_broker.address,
                arguments=["careers:Mailing", "--http", port.address],
                environment={"AD_BILLING_LEDGER": str(tmp_path / "ledger.sqlite3")},
            )
            found[port.address].wait_for("standing", career="billing")
        yield found


@pytest.fixture
def prometheus(candidates, reader, tmp_path) -> Iterator[Ask]:
    """Debian's, set up as the page says: ask it by path."""
    *_, rules, dashboard, begin = commands("metrics")
    user, port = reader(tmp_path), lease_port()
    user.types(f"{rules} && {dashboard}")
    (config,) = blocks(PAGE, "yaml")
    config = config.replace('["127.0.0.1:8080"]', json.dumps([*candidates]))
    (tmp_path / "prometheus.yml").write_text(OFTEN + config)
    user.opens(f"{begin} --web.listen-address={port.address}")

    def ask(path: str) -> Any:
        with urllib.request.urlopen(f"http://{port.address}/api/v1/{path}", timeout=60) as said:
            return json.load(said)["data"]

    def answers() -> bool:
        with suppress(OSError):
            return len(ask("targets")["activeTargets"]) == 2
        return False

    eventually(answers)
    yield ask
    port.release()


@pytest.mark.timeout(300)
def test_every_panel_has_series_and_every_rule_is_read(
    candidates, prometheus, kafka_broker, znode_root, zookeeper_server, topic_name, tmp_path
):
    panels = json.loads((tmp_path / "leaderq-dashboard.json").read_text())["panels"]
    queries = {
        (panel["title"], target["legendFormat"]): target["expr"]
        .replace("$job", ".*")
        .replace("$__rate_interval", "1m")
        for panel in panels
        for target in panel.get("targets", ())
    }
    a, b = candidates.values()
    a.wait_for("stage_began", career="billing", stage="execution")
    _, _, readyz, metrics, *_ = commands("metrics")
    for command, said in ((readyz, "ready\n"), (metrics, 'leaderq_leader{career="billing"} 1.0')):
        address = command.removeprefix("curl ").replace("127.0.0.1:8080", next(iter(candidates)))
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert said in answer.read().decode()
    produce(kafka_broker.address, topic_name, [(b"k", b"10.0.0.1 - - [x] GET /")] * 20)

    def series(expr: str) -> list[Any]:
        found: list[Any] = prometheus(f"query?query={urllib.parse.quote(expr)}")["result"]
        return found

    def number(expr: str) -> float:
        return sum(float(one["value"][1]) for one in series(expr))

    eventually(lambda: number("leaderq_kafka_timed_records_total") > 0)
    where = ["--zookeeper", zookeeper_server.address, "--root", znode_root]
    assert main(["step-down", "--career", "billing", *where]) == 0
    b.wait_for("stage_began", career="billing", stage="execution")
    eventually(lambda: number("leaderq_queue_acknowledged_items_total") > 2)

    seen: set[Any] = set()  # a panel of changes is empty again when they have passed

    def left() -> set[Any]:
        seen.update(name for name, expr in queries.items() if series(expr))
        return {*queries} - seen

    eventually(lambda: not left())
    groups = prometheus("rules")["groups"]
    rules = [one for group in groups for one in group["rules"]]
    assert [one["health"] for one in rules] == ["ok"] * len(ALERTS)
