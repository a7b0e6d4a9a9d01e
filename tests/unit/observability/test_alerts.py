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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from test_health import FOLLOWER, LEADER, TERM

from leaderq.events import (
    BudgetMissed,
    CareerError,
    DrainProgress,
    DrainStalled,
    EventBus,
    RecordSkipped,
    SessionChanged,
    TermBegan,
)
from leaderq.kafka.handling.context import DrainFigures
from leaderq.observability import figures
from leaderq.observability.alerts import ALERTS, rule_file, selected
from leaderq.observability.dashboard import SECTIONS, dashboard
from leaderq.observability.figures import FigureSource, QueueFigures, offer_figures
from leaderq.observability.health import Health
from leaderq.observability.metrics import TABLE, Metrics

promtool = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(promtool is None, reason="needs promtool (Debian: prometheus)")
STEP_S = 30
QUERIES = [
    expr.replace("$__rate_interval", "5m")
    for section in SECTIONS.values()
    for panel in section
    for expr in panel.queries.values()
]
"""Those of the dashboard, for all jobs, as Grafana sends them."""
ASKED = {
    name
    for expr in [*(one.expr for one in ALERTS), *QUERIES]
    for name in re.findall(r"leaderq_[a-z_]+", expr)
}
DEPLOYED = Path(__file__).parents[3] / "docs" / "deploy"
prometheus_client: Any = pytest.importorskip("prometheus_client", reason="needs leaderq[metrics]")


class Process:
    """One process with a candidate of career *c*, as a scrape sees it."""

    def __init__(self, state: Any) -> None:
        self.state, self.events = state, EventBus()
        self.registry = prometheus_client.CollectorRegistry()
        self.registry.register(Metrics(Health(self.events, lambda: self.state)))

    def happened(self, kind: type, *values: Any) -> None:
        self.events.publish(kind("c", "a", *values))


@dataclass
class Scrapes:
    """Two processes, a leader and a follower, and all that was scraped from them so far."""

    running: dict[str, Process] = field(default_factory=dict)
    values: dict[str, list[str]] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        self.running = {"a": Process(LEADER), "b": Process(FOLLOWER)}

    @property
    def leader(self) -> Process:
        return self.running["a"]

    def take_over(self) -> None:
        """The follower leads, and the leader is gone."""
        self.running["b"].state = LEADER
        del self.running["a"]

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


Fault = Callable[[Scrapes], None]


def all_gone(world: Scrapes) -> None:
    world.running.clear()
    world.pass_time(5)


def nobody_is_elected(world: Scrapes) -> None:
    world.leader.state = replace(FOLLOWER, role="enlisting")
    world.pass_time(5)


def alone(world: Scrapes) -> None:
    del world.running["b"]
    world.pass_time(65)


def killed(world: Scrapes) -> None:
    world.take_over()
    world.running["b"].happened(TermBegan, 8, True)
    world.pass_time(2)


def killed_and_succeeded_by_a_fresh_process(world: Scrapes) -> None:
    world.running.clear()
    world.running["fresh"] = Process(LEADER)
    world.running["fresh"].happened(TermBegan, 8, True)
    world.pass_time(2)


def failing(world: Scrapes) -> None:
    for _ in range(4):
        world.leader.happened(CareerError, 7, "execution", ValueError())
        world.pass_time(1)


def overtaxed(world: Scrapes) -> None:
    world.leader.happened(BudgetMissed, 7, "hand-over", 1.0)
    world.pass_time(1)


def hardly_renewed(world: Scrapes) -> None:
    world.leader.state = replace(LEADER, term=replace(TERM, lease_s=1.0))
    world.pass_time(3)


def cut_off(world: Scrapes) -> None:
    world.running["b"].happened(SessionChanged, "lost")
    world.pass_time(1)


def stalled(world: Scrapes) -> None:
    world.leader.happened(DrainStalled, "clicks-0", 1, 2, 1)
    world.pass_time(1)


def passed_over(world: Scrapes) -> None:
    world.leader.happened(RecordSkipped, "clicks-0", 4, ValueError(), 1)
    world.pass_time(1)


@dataclass
class Owners:
    """What offers figures in these processes; each scrape of either sees them."""

    drain: DrainFigures = field(default_factory=DrainFigures)
    schedule: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SCHEDULE, 0.0))
    producer: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PRODUCER, 0.0) | FINE)

    def __post_init__(self) -> None:
        self.queue = QueueFigures("q", lambda counts: {})
        offer_figures(FigureSource.DRAIN, "c", self.drain, DrainFigures.read)
        offer_figures(FigureSource.SCHEDULE, "s", self, lambda self: self.schedule)
        offer_figures(FigureSource.PRODUCER, "p", self, lambda self: self.producer)


def _figures_of(source: FigureSource) -> list[str]:
    return [row.figure for row in TABLE if row.source is source]


FINE = {"takes": 1.0, "oldest_age_s": 0.0}
"""What a producer offers whose sink and journal are as they should be."""
SCHEDULE, PRODUCER = _figures_of(FigureSource.SCHEDULE), _figures_of(FigureSource.PRODUCER)


def behind(world: Scrapes, own: Owners) -> None:
    world.leader.happened(DrainProgress, 7, 9, None, None, {"clicks-0": 5})
    world.pass_time(21)


def behind_but_committing(world: Scrapes, own: Owners) -> None:
    world.leader.happened(DrainProgress, 7, 9, None, None, {"clicks-0": 5})
    for _ in range(21):
        own.drain.commits += 1
        world.pass_time(1)


def held_up(world: Scrapes, own: Owners) -> None:
    for minutes in range(7):
        own.drain._held_up = 60.0 * minutes, None
        world.pass_time(1)


def late_records(world: Scrapes, own: Owners) -> None:
    for _ in range(25):
        own.drain.timed, own.drain.delay_s = own.drain.timed + 2, own.drain.delay_s + 2000.0
        world.pass_time(1)


def set_aside(world: Scrapes, own: Owners) -> None:
    own.queue.add("dead_letters")
    world.pass_time(1)


def waiting(world: Scrapes, own: Owners) -> None:
    own.queue.note(0.0, {"ready": 3, "oldest_due_s": 700.0})
    world.pass_time(7)


def late(world: Scrapes, own: Owners) -> None:
    own.schedule["overdue_s"] = 301.0
    world.pass_time(1)


def lost(world: Scrapes, own: Owners) -> None:
    own.schedule["lost"] = 1.0
    world.pass_time(1)


def unsent(world: Scrapes, own: Owners) -> None:
    own.producer["oldest_age_s"] = 301.0
    world.pass_time(8)


def full(world: Scrapes, own: Owners) -> None:
    own.producer["takes"] = 0.0
    world.pass_time(2)


def given_up(world: Scrapes, own: Owners) -> None:
    own.producer["dropped"] = 1.0
    world.pass_time(1)


FAULTS = {
    all_gone: {"NobodyLeads"},
    nobody_is_elected: {"NobodyLeads"},
    alone: {"NoSuccessor"},
    killed: {"LeaderDied"},
    killed_and_succeeded_by_a_fresh_process: {"LeaderDied"},
    failing: {"CareerFails"},
    overtaxed: {"BudgetMissed"},
    hardly_renewed: {"LeaseRunsLow"},
    cut_off: {"SessionLost"},
    stalled: {"ConsumerStalls"},
    passed_over: {"RecordsSetAside"},
    behind: {"DrainStandsStill"},
    behind_but_committing: set(),
    held_up: {"HeldUp"},
    late_records: {"RecordsLate"},
    set_aside: {"DeadLetters"},
    waiting: {"QueueWaits"},
    late: {"TickMissed"},
    lost: {"TickFailed"},
    unsent: {"ProducerStandsStill"},
    full: {"JournalTakesNothing"},
    given_up: {"RequestsLost"},
}
"""What is done, and which alerts fire then; no others do."""


def test_every_alert_has_a_fault():
    assert set().union(*FAULTS.values()) == {one.name for one in ALERTS}


@needs_promtool
def test_every_alert_fires_for_its_fault_and_for_nothing_else_and_clears(monkeypatch, tmp_path):
    made = {fault.__name__: made_and_mended(fault, monkeypatch) for fault in FAULTS}
    firing = fired(made, tmp_path)
    assert firing == {
        fault.__name__: {"before": set(), "during": FAULTS[fault], "after": set()}
        for fault in FAULTS
    }


def made_and_mended(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> tuple[Scrapes, list[int]]:
    """What was scraped before, during and after a fault, and the last second of each."""
    monkeypatch.setattr(figures, "_offers", [])
    world, own = Scrapes(), Owners()
    world.pass_time(20)
    ends = [world.steps]
    fault(*(world, own)[: fault.__code__.co_argcount])
    ends.append(world.steps)
    # All is mended: processes as at first, everything taken.
    world.running = {"a": Process(LEADER), "b": Process(FOLLOWER)}
    own.schedule["overdue_s"] = 0.0
    own.producer |= FINE
    own.queue.note(0.0, {"ready": 0, "oldest_due_s": 0.0})
    world.pass_time(61 if fault is lost else 20)
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
        r'when!=\\?"(\w+) (\w+)\\?".*?got:(.*?)(?=expr:|\Z)', done.stdout + done.stderr, re.S
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
    assert {row.name for row in TABLE} >= ASKED


def test_panels_do_not_overlap_and_each_has_a_number_of_its_own():
    panels = json.loads(dashboard())["panels"]
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    assert len(panels) == len(SECTIONS) + sum(map(len, SECTIONS.values()))
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize(
    ("name", "written"), [("leaderq-rules.yml", rule_file), ("leaderq-dashboard.json", dashboard)]
)
def test_the_files_to_deploy_are_those_that_are_written(name, written):
    """Else: leaderq observe rules > docs/deploy/leaderq-rules.yml, dashboard likewise."""
    assert (DEPLOYED / name).read_text() == written()
