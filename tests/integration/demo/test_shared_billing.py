"""The demo cluster's programs without containers."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from postgres import SUPERUSER

from leaderq.cli.demo.ad_billing.audit import audit, audit_places
from leaderq.cli.demo.ad_billing.generator import generate
from leaderq.cli.demo.ad_billing.shared_ledger import LedgerAway, SharedLedger
from leaderq.cli.demo.ad_billing.shared_totals import Totals
from leaderq.cli.demo.ad_billing.watch import Watch
from leaderq.config import Settings
from leaderq.kafka.topics import end_offsets
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.ports import lease_port

EXAMPLES = Path(__file__).parents[3] / "examples"
CAREER = """
import sys
sys.path.insert(0, {examples!r})
from ad_billing.shared_billing import SharedAdBilling

class Billing(SharedAdBilling):
    topics = {topic!r}
"""


@pytest.fixture
def stopped() -> threading.Event:
    return threading.Event()


@pytest.fixture
def pool(stopped) -> Iterator[ThreadPoolExecutor]:
    """Threads whose work ends when ``stopped`` is set, after the test at the latest."""
    with ThreadPoolExecutor() as threads:
        yield threads
        stopped.set()


@pytest.fixture
def url(postgres) -> str:
    return f"postgresql://{SUPERUSER}@127.0.0.1:{postgres.port}/{postgres.name}"


@pytest.fixture
def candidate(start, kafka_broker, topic_name, tmp_path, url) -> Callable[[str], CandidateProcess]:
    (tmp_path / "billing_here.py").write_text(
        CAREER.format(examples=str(EXAMPLES), topic=topic_name)
    )

    def begin(name: str) -> CandidateProcess:
        process: CandidateProcess = start(
            "billing_here:Billing",
            id=name,
            kafka=kafka_broker.address,
            environment={"AD_BILLING_LEDGER": url},
            # the leader is to lead until it is killed, however slow all are; its guardian frees the
            # place
            session_timeout_s=30.0,
        )
        process.wait_for("standing")
        return process

    return begin


@pytest.fixture
def watched(zookeeper_server, znode_root, url, pool, stopped) -> list[str]:
    lines: list[str] = []
    settings = Settings(zookeeper=zookeeper_server.address, root=znode_root)
    pool.submit(Watch(settings, Totals(url), stopped, lines.append).run)
    return lines


def test_a_leader_is_killed_and_what_was_acknowledged_is_billed_once_and_in_order(
    kafka_broker, topic_name, tmp_path, pool, stopped, candidate, watched, url
):
    def told(pattern: str) -> bool:
        return any(re.search(pattern, line) for line in list(watched))

    eventually(lambda: told("nobody has led yet"))
    pulse = tmp_path / "pulse"
    generating = pool.submit(generate, kafka_broker.address, topic_name, 300.0, stopped, pulse)
    a, totals = candidate("a"), Totals(url)
    candidate("b")
    eventually(lambda: told("^a leads term 1; "))
    eventually(lambda: totals.so_far()[0] > 100)
    a.signal_worker(signal.SIGKILL)
    eventually(lambda: told("^b leads term 2; nobody waits"))
    eventually(lambda: told(r"^billing resumed in term 2, after \d+\.\d\d s$"))
    eventually(lambda: told(r"^b leads term 2, execution, for \d+ s: billed [\d,]+, \d+/s, lag "))
    eventually(lambda: told("^term 1 of a is over"))
    stopped.set()
    first, sent = generating.result(60)
    assert first == 1
    eventually(lambda: totals.so_far()[0] == sent)
    entries = list(totals.entries())
    assert audit(entries, sent).problems == []
    assert audit_places(entries, end_offsets(kafka_broker.address, topic_name)).problems == []
    totals.close()


def test_a_database_that_is_not_there_is_named_without_its_password():
    port = lease_port()
    ledger = SharedLedger(f"postgresql://billing:hunter2@{port.address}/billing", "ad-billing")
    with pytest.raises(LedgerAway, match=r"cannot be used.*is PostgreSQL running there") as away:
        ledger.create()
    port.release()
    assert "hunter2" not in str(away.value)
