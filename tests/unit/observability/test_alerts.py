"""Every alert fires when what it is about happens, clears afterwards, and nothing else fires.

Each fault is made on the objects that count in real programs; their scrapes, one each 30 s, are
what promtool judges the rules over.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from test_health import FOLLOWER, LEADER, TERM
from test_metrics import Scraped

from leaderq import events
from leaderq.kafka.handling.context import DrainFigures
from leaderq.observability import figures, metrics
from leaderq.observability.alerts import ALERTS, rule_file, selected
from leaderq.observability.dashboard import SECTIONS, dashboard
from leaderq.observability.figures import FigureSource, QueueFigures, offer_figures

promtool = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(promtool is None, reason="needs promtool (Debian: prometheus)")
STEP_S = 30
PANELS = [panel for section in SECTIONS.values() for panel in section]
QUERIES = [
    expr.replace("$__rate_interval", "5m") for panel in PANELS for expr in panel.queries.values()
]
"""Those of the dashboard, for all jobs, as Grafana sends them."""
ASKED = {
    name
    for expr in [*(one.expr for one in ALERTS), *QUERIES]
    for name in re.findall(r"leaderq_[a-z_]+", expr)
}
DEPLOYED = Path(__file__).parents[3] / "docs" / "deploy"
prometheus_client: Any = pytest.importorskip("prometheus_client", reason="needs leaderq[metrics]")


Process = partial(Scraped, prometheus_client)


def _zeros(source: FigureSource) -> dict[str, float]:
    return {row.figure: 0.0 for row in metrics.TABLE if row.source is source}


FINE = {"takes": 1.0, "oldest_age_s": 0.0}
"""What a producer offers whose sink and journal are as they should be."""


class Scrapes:
    """Two processes, a leader and a follower, what offers figures in them (each scrape of either
    sees it), and all that was scraped so far.
    """

    def __init__(self) -> None:
        self.running = {"a": Process(LEADER), "b": Process(FOLLOWER)}
        self.values: dict[str, list[str]] = {}
        self.steps = 0
        self.drain, self.queue = DrainFigures(), QueueFigures("q", lambda counts: {})
        self.schedule = _zeros(FigureSource.SCHEDULE)
        self.producer = _zeros(FigureSource.PRODUCER) | FINE
        offer_figures(FigureSource.DRAIN, "c", self.drain, DrainFigures.read)
        offer_figures(FigureSource.SCHEDULE, "s", self, lambda self: self.schedule)
        offer_figures(FigureSource.PRODUCER, "p", self, lambda self: self.producer)

    def is_now(self, state: Any) -> None:
        self.running["a"].state = state

    def take_over(self, **by: Scraped) -> None:
        self.running = by or {"b": self.running["b"]}
        ((name, process),) = self.running.items()
        process.state = LEADER
        happens("TermBegan", 8, True, to=name)(self)

    def pass_time(self, minutes: float) -> None:
        """Scrape for so long; nothing changes meanwhile."""
        steps = int(minutes * 60 / STEP_S)
        seen = dict(self._scrape())
        for series in seen.keys() | self.values.keys():
            earlier = self.values.setdefault(series, [f"_x{self.steps}"] if self.steps else [])
            if series in seen:
                earlier.append(f"{seen[series]}x{steps - 1}")
            else:
                is_gone = not earlier[-1].startswith(("_", "stale"))
                earlier += ["stale", f"_x{steps - 1}"] if is_gone else [f"_x{steps}"]
        self.steps += steps

    def _scrape(self) -> Iterator[tuple[str, str]]:
        for instance, process in self.running.items():
            for family in process.registry.collect():
                for sample in family.samples:
                    if sample.name in ASKED:
                        labels = {**sample.labels, "instance": instance, "job": "j"}
                        inside = ",".join(f"{key}={json.dumps(labels[key])}" for key in labels)
                        yield f"{sample.name}{{{inside}}}", f"{sample.value:g}"


class Fault(NamedTuple):
    """``do`` is done, then ``each`` every minute; after ``minutes`` this alert fires, and no
    other.
    """

    alert: str
    minutes: int
    do: Callable[[Scrapes], object] = id
    each: Callable[[Scrapes], object] = id


def commits(world: Scrapes) -> None:
    world.drain.commits += 1


def is_held_up(world: Scrapes) -> None:
    world.drain._held_up = world.drain._held_up[0] + 60.0, None


def takes_late_records(world: Scrapes) -> None:
    world.drain.timed, world.drain.delay_s = world.drain.timed + 2, world.drain.delay_s + 2000.0


def producer_tells(**figures: float) -> Callable[[Scrapes], object]:
    return lambda world: world.producer.update(figures)


def happens(kind: str, *values: Any, to: str = "a") -> Callable[[Scrapes], object]:
    return lambda world: world.running[to].events.publish(getattr(events, kind)("c", "a", *values))


LAGS = happens("DrainProgress", 7, 9, None, None, {"clicks-0": 5})
FAILURE = (7, "execution", ValueError())
POISON = ("clicks-0", 4, ValueError(), 1)
WAITING = {"ready": 3, "oldest_due_s": 700.0}
ELECTING = replace(FOLLOWER, role="enlisting")
RUNNING_LOW = replace(LEADER, term=replace(TERM, lease_s=1.0))
FAULTS = {
    "all are gone": Fault("NobodyLeads", 5, lambda world: world.running.clear()),
    "nobody is elected": Fault("NobodyLeads", 5, lambda world: world.is_now(ELECTING)),
    "the leader is alone": Fault("NoSuccessor", 65, lambda world: world.running.pop("b")),
    "the leader is killed": Fault("LeaderDied", 2, lambda world: world.take_over()),
    "a fresh process succeeds a killed one": Fault(
        "LeaderDied", 2, lambda world: world.take_over(fresh=Process(LEADER))
    ),
    "the career fails each time": Fault("CareerFails", 4, each=happens("CareerError", *FAILURE)),
    "a stage takes too long": Fault(
        "BudgetMissed", 1, happens("BudgetMissed", 7, "hand-over", 1.0)
    ),
    "a lease is hardly renewed": Fault("LeaseRunsLow", 3, lambda world: world.is_now(RUNNING_LOW)),
    "a follower is cut off": Fault("SessionLost", 1, happens("SessionChanged", "lost", to="b")),
    "a consumer stalls": Fault("ConsumerStalls", 1, happens("DrainStalled", "clicks-0", 1, 2, 1)),
    "a record is passed over": Fault("RecordsSetAside", 1, happens("RecordSkipped", *POISON)),
    "a drain is behind": Fault("DrainStandsStill", 21, LAGS),
    "a drain is behind and commits": Fault("", 21, LAGS, commits),
    "a drain is held up": Fault("HeldUp", 7, each=is_held_up),
    "records are late": Fault("RecordsLate", 25, each=takes_late_records),
    "an item is dead": Fault("DeadLetters", 1, lambda world: world.queue.add("dead_letters")),
    "items wait": Fault("QueueWaits", 7, lambda world: world.queue.note(0.0, WAITING)),
    "a tick is late": Fault("TickMissed", 1, lambda world: world.schedule.update(overdue_s=301.0)),
    "a tick is lost": Fault("TickFailed", 1, lambda world: world.schedule.update(lost=1.0)),
    "requests are not sent": Fault("ProducerStandsStill", 8, producer_tells(oldest_age_s=301.0)),
    "a journal is full": Fault("JournalTakesNothing", 2, producer_tells(takes=0.0)),
    "a request is given up": Fault("RequestsLost", 1, producer_tells(dropped=1.0)),
}


def test_every_alert_has_a_fault():
    assert {fault.alert for fault in FAULTS.values()} - {""} == {one.name for one in ALERTS}


@needs_promtool
def test_every_alert_fires_for_its_fault_and_for_nothing_else_and_clears(monkeypatch, tmp_path):
    firing = fired({name: made_and_mended(name, monkeypatch) for name in FAULTS}, tmp_path)
    assert firing == {
        name: {"before": set(), "during": {fault.alert} - {""}, "after": set()}
        for name, fault in FAULTS.items()
    }


def made_and_mended(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Scrapes, list[int]]:
    """What was scraped before, during and after a fault, and the last second of each."""
    monkeypatch.setattr(figures, "_offers", [])
    world = Scrapes()
    world.pass_time(20)
    ends = [world.steps]
    fault = FAULTS[name]
    fault.do(world)
    for _ in range(fault.minutes):
        fault.each(world)
        world.pass_time(1)
    ends.append(world.steps)
    # All is mended: processes as at first, everything taken.
    world.running = {"a": Process(LEADER), "b": Process(FOLLOWER)}
    world.schedule["overdue_s"] = 0.0
    world.producer |= FINE
    world.queue.note(0.0, {"ready": 0, "oldest_due_s": 0.0})
    world.pass_time(61 if name == "a tick is lost" else 20)
    ends.append(world.steps)
    return world, [(steps - 1) * STEP_S for steps in ends]


def fired(
    made: dict[str, tuple[Scrapes, list[int]]], folder: Path
) -> dict[str, dict[str, set[str]]]:
    """Of each fault the names of the alerts that fire before, during and after it, as one run of
    promtool finds them.
    """
    (folder / "rules.yml").write_text(rule_file())
    tests = [
        {
            "interval": f"{STEP_S}s",
            "input_series": [
                {"series": name, "values": " ".join(seen)} for name, seen in world.values.items()
            ],
            "promql_expr_test": [
                {
                    # not expected to be found, so that promtool tells what it found instead
                    "expr": f'ALERTS{{alertstate="firing",when!="{name} {when}"}}',
                    "eval_time": f"{at_s}s",
                    "exp_samples": [{"labels": 'ALERTS{alertname="none"}', "value": 1}],
                }
                for when, at_s in zip(("before", "during", "after"), ends, strict=True)
            ],
        }
        for name, (world, ends) in made.items()
    ]
    whole = {"rule_files": ["rules.yml"], "evaluation_interval": f"{STEP_S}s", "tests": tests}
    (folder / "test.yml").write_text(json.dumps(whole))
    command = [str(promtool), "test", "rules", "test.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    told = re.findall(
        r'when!=\\?"([\w ]+) (\w+)\\?".*?got:(.*?)(?=expr:|\Z)', done.stdout + done.stderr, re.S
    )
    firing: dict[str, dict[str, set[str]]] = {}
    for name, when, got in told:
        firing.setdefault(name, {})[when] = set(re.findall(r'alertname="Leaderq(\w+)"', got))
    return firing


@needs_promtool
@pytest.mark.parametrize("job", ["", "billing|ads"])
def test_promtool_finds_nothing_wrong_with_the_rules(job, tmp_path):
    (tmp_path / "rules.yml").write_text(rule_file(job))
    command = [str(promtool), "check", "rules", "--lint=all", str(tmp_path / "rules.yml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_narrows_every_series_also_those_that_are_narrowed_already():
    expr = 'sum by (career) (leaderq_a_total{state="lost"} unless leaderq_b_total offset 5m) > 0'
    assert selected(expr, 'job=~"x"') == (
        'sum by (career) (leaderq_a_total{state="lost",job=~"x"}'
        ' unless leaderq_b_total{job=~"x"} offset 5m) > 0'
    )
    assert selected(expr, "") == expr


def test_what_is_asked_for_is_in_the_table_of_metrics():
    assert {row.name for row in metrics.TABLE} >= ASKED


@pytest.mark.parametrize(
    ("name", "written"), [("leaderq-rules.yml", rule_file), ("leaderq-dashboard.json", dashboard)]
)
def test_the_files_to_deploy_are_those_that_are_written(name, written):
    """Else: leaderq observe rules > docs/deploy/leaderq-rules.yml, dashboard likewise."""
    assert (DEPLOYED / name).read_text() == written()
