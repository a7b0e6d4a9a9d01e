from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from test_health import LEADER

from leaderq import coalescing, errors, events, kafka, producing
from leaderq.base import clock
from leaderq.kafka.handling.context import DrainFigures
from leaderq.observability import figures, metrics
from leaderq.observability.figures import FigureSource, offer_figures, read_figures
from leaderq.observability.health import Health
from leaderq.observability.metrics import TABLE, Metrics
from leaderq.producing.sinks import CallableSink
from leaderq.singular import SingularUpdateQueue

PAGE = Path(__file__).parents[3] / "docs" / "design" / "observability.md"
ME = ("c", "a")
HAPPENED = [
    events.TermBegan(*ME, 7, False),
    events.StageBegan(*ME, 7, events.Stage.INAUGURATION),
    events.StageBegan(*ME, 7, events.Stage.EXECUTION),
    events.WorkPaused(*ME, 7, "why"),
    events.SessionChanged(*ME, "suspended"),
    events.DrainStalled(*ME, "clicks-0", 1, 2, 1),
    events.DrainProgress(*ME, 7, 9, None, None, {"clicks-0": 5, "clicks-1": 3, "a-b-0": 1}),
    events.RecordSkipped(*ME, "clicks-0", 4, ValueError(), 1),
    events.RecordDeadLettered(*ME, "clicks-0", 5, ValueError(), 1, "dead"),
    events.RecordDeadLettered(*ME, "clicks-0", 6, ValueError(), 1, "dead"),
    events.CareerError(*ME, 7, "execution", ValueError()),
    events.WorkRefused(*ME, 7, events.Stage.EXECUTION, errors.Reason.FENCED),
    events.BudgetMissed(*ME, 7, "hand-over", 1.0),
    events.CoolingOff(*ME, 1.0, 1, "why"),
]


@pytest.fixture
def client():
    return pytest.importorskip("prometheus_client", reason="needs leaderq[metrics]")


@pytest.fixture
def no_offers(monkeypatch):
    monkeypatch.setattr(figures, "_offers", [])


class Scraped:
    """A registry with the metrics of one runner, in ``state``."""

    def __init__(self, client, state=LEADER) -> None:
        self.events, self.state = events.EventBus(), state
        self.registry = client.CollectorRegistry()
        self._client = client
        self.metrics = Metrics(Health(self.events, lambda: self.state))
        self.registry.register(self.metrics)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"leaderq_{name}", labels or {"career": "c"})

    def text(self) -> str:
        return self._client.generate_latest(self.registry).decode()


@pytest.fixture
def scraped(client, no_offers) -> Scraped:
    return Scraped(client)


def test_the_table_of_the_docs_is_that_of_the_program():
    line = re.compile(r"^\| `(leaderq_\w+)` \| ([a-z, ]*?) \| (.+?) \|$", re.MULTILINE)
    told = line.findall(PAGE.read_text())
    assert told == [(row.name, ", ".join(row.labels), row.help) for row in TABLE]


def test_every_event_that_is_counted_is_tried_here():
    tried = {*map(type, HAPPENED), events.TermEnded}
    assert {kind for row in TABLE for kind in row.events} <= tried


def test_what_events_tell_is_counted(scraped):
    for event in HAPPENED:
        scraped.events.publish(event)
    value = scraped.value
    for name in ("terms_total", "work_pauses_total", "kafka_stalls_total", "cool_offs_total"):
        assert value(name) == 1, name
    assert value("term_number") == 7
    assert value("session_changes_total", career="c", state="suspended") == 1
    assert value("kafka_lag_records", career="c", topic="clicks") == 8
    assert value("kafka_lag_records", career="c", topic="a-b") == 1
    assert value("kafka_poison_records_total", career="c", action="skip") == 1
    assert value("kafka_poison_records_total", career="c", action="dead-letter") == 2
    assert value("career_errors_total", career="c", stage="execution") == 1
    assert value("fence_refusals_total", career="c", reason="fenced") == 1
    assert value("missed_budgets_total", career="c", stage="hand-over") == 1
    assert value("stage_duration_seconds_count", career="c", stage="inauguration") == 1
    assert value("stage_duration_seconds_count", career="c", stage="execution") == 0
    scraped.events.publish(events.TermEnded(*ME, 7, errors.Reason.FENCED, False))
    assert value("unclean_term_ends_total") == 0
    scraped.events.publish(events.TermBegan(*ME, 8, True))
    assert value("stage_duration_seconds_count", career="c", stage="execution") == 1
    assert value("term_ends_total", career="c", reason="fenced") == 1
    assert value("unclean_term_ends_total") == 1
    assert value("kafka_lag_records", career="c", topic="clicks") is None


def test_all_that_is_served_is_read_by_the_clients_parser_and_pleases_promtool(client, scraped):
    for event in HAPPENED:
        scraped.events.publish(event)
    owner = type("Owner", (), {})()
    for source in FigureSource:
        named = {row.figure: 1.5 for row in TABLE if row.source is source}
        offer_figures(source, "n", owner, lambda _, named=named: named)
    from prometheus_client.parser import text_string_to_metric_families

    found = {family.name: family for family in text_string_to_metric_families(scraped.text())}
    assert {name.removesuffix("_total") for name in (row.name for row in TABLE)} == set(found)
    for row in TABLE:
        family = found[row.name.removesuffix("_total")]
        kind = "histogram" if row is metrics.STAGES else "gauge"
        kind = "counter" if row.name.endswith("_total") else kind
        assert (family.type, family.documentation) == (kind, row.help)
        assert all(set(sample.labels) - {"le"} == set(row.labels) for sample in family.samples)
    if promtool := shutil.which("promtool"):
        command = [promtool, "check", "metrics"]
        done = subprocess.run(command, input=scraped.text(), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_buffered_producer_offers_every_figure_of_the_table(scraped, tmp_path):
    sink = CallableSink(lambda batch: [1 / n for n in batch], refuses=(ZeroDivisionError,))
    with closing(producing.BufferedProducer(sink, name="clicks", journal=tmp_path)) as producer:
        for request in (1, 0, 2):
            producer.send(request)
        producer.flush(60)
        wanted = {row.figure for row in TABLE if row.source is FigureSource.PRODUCER}
        found = read_figures()[FigureSource.PRODUCER, "clicks"]
        assert {figure.partition(":")[0] for figure in found} == wanted

        def value(figure: str, **labels: str) -> float | None:
            return scraped.value(f"producer_{figure}", producer="clicks", **labels)

        assert (value("accepted_requests_total"), value("confirmed_requests_total")) == (3, 2)
        assert value("failed_requests_total") == 1
        assert value("lost_requests_total", reason="refused by the sink") == 1
        assert [value("state", state=one) for one in ("direct", "blocked")] == [1, 0]


def test_what_cannot_be_served_of_one_owner_takes_nothing_from_the_others(scraped):
    owner = type("Owner", (), {})()
    for name, offered in {"a": {"accepted": None}, "b": None, "c\ud800": {"accepted": 2}}.items():
        offer_figures(FigureSource.PRODUCER, name, owner, lambda _, offered=offered: offered)
    assert 'leaderq_producer_accepted_requests_total{producer="c?"} 2.0' in scraped.text()


def test_a_drain_tells_how_old_records_were_and_for_how_long_they_held_it_up(monkeypatch):
    drain, now = DrainFigures(), {"s": 100.0}
    monkeypatch.setattr(clock, "now_s", lambda: now["s"])
    monkeypatch.setattr(clock, "now_ms", lambda: 10_000)
    record = kafka.Record("t", 0, 0, 7_500, b"k", b"v")
    of_a_fast_clock, without = record.replace(timestamp_ms=11_000), record.replace(timestamp_ms=-1)
    drain.time_commit([record, of_a_fast_clock, without])
    assert (drain.read()["timed"], drain.read()["delay_s"]) == (2, 2.5)
    told = []
    for is_held_up in (True, True, False, False, True):
        drain.hold_up(is_held_up)
        now["s"] += 4
        told.append(drain.read()["held_up_s"])
    assert told == [4, 8, 8, 8, 12]


def test_a_program_without_careers_is_scraped_for_its_coordinators_and_writers(client, no_offers):
    """As the page says: the collector registered in a registry of one's own."""
    registry = client.CollectorRegistry()
    registry.register(metrics.Metrics())
    coordinator: coalescing.QueueCoordinator[str] = coalescing.QueueCoordinator(name="pages")
    with coordinator.hold("k"), SingularUpdateQueue(lambda n: 1 / n, name="ledger") as writer:
        coordinator.offer("k", coordinator.dequeue)
        coordinator.offer("k", print)
        assert writer.submit(1).result(60) == 1
        assert writer.submit(0).exception(60)
        offered = read_figures()
        for source, name in ((FigureSource.COALESCING, "pages"), (FigureSource.SINGULAR, "ledger")):
            wanted = {row.figure for row in TABLE if row.source is source}
            assert wanted <= set(offered[source, name])

        def value(metric: str, **labels: str) -> float | None:
            return registry.get_sample_value(f"leaderq_{metric}", labels)

        assert value("coalescing_runs_total", coordinator="pages") == 1
        assert value("coalescing_declined_requests_total", coordinator="pages") == 1
        assert value("coalescing_waiting_requests", coordinator="pages") == 1
        assert value("singular_applied_requests_total", writer="ledger") == 1
        assert value("singular_failed_requests_total", writer="ledger") == 1


def test_without_the_extra_one_sentence_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    reply = Metrics(Health(events.EventBus(), lambda: LEADER)).route()._route()
    assert reply.status == 501
    assert reply.body == "501 metrics need prometheus-client: pip install 'leaderq[metrics]'\n"
