"""A dashboard for Grafana, written from one table of panels.

Data source and job are variables of the dashboard, so one import can show any installation.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from leaderq.observability.alerts import selected

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 8
_HEIGHT = 7
_COLUMNS = 24 // _WIDTH


@dataclass(frozen=True)
class Panel:
    """One plot over time. ``unit`` is Grafana's name of the unit; ``queries`` has an expression for
    each legend.
    """

    title: str
    unit: str
    queries: dict[str, str]


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


def _of(function: str, metric: str, by: str) -> str:
    return f"{function} by ({by}) ({metric})"


# A table: each row takes as few lines as it can.
# fmt: off
SECTIONS: dict[str, tuple[Panel, ...]] = {
    "Careers": (
        Panel("Who leads", "short", {"{{career}} {{instance}}": "leaderq_leader == 1"}),
        Panel("Ready to lead", "short", {"{{career}}": _of("sum", "leaderq_ready", "career")}),
        Panel("Ends of terms a minute", "short", {"{{career}} {{reason}}":
            f"60 * {_rate('leaderq_term_ends_total', 'career, reason')} > 0"}),
        Panel("Lease left, as a share of the session time-out", "percentunit", {"{{career}}":
            "min by (career) (leaderq_lease_margin_seconds / leaderq_session_timeout_seconds)"}),
        Panel("Errors of the career a minute", "short", {"{{career}} {{stage}}":
            f"60 * {_rate('leaderq_career_errors_total', 'career, stage')}"}),
        Panel("Sessions lost, leaders died", "short", {
            "sessions {{career}}":
                'sum by (career) (leaderq_session_changes_total{state="lost"})',
            "leaders {{career}}": _of("sum", "leaderq_unclean_term_ends_total", "career")}),
    ),
    "Kafka": (
        Panel("Lag", "short", {"{{career}} {{topic}}":
            _of("sum", "leaderq_kafka_lag_records", "career, topic")}),
        Panel("Records a second", "ops", {"{{career}}":
            _rate("leaderq_kafka_records_total", "career")}),
        Panel("Share of time spent on commits", "percentunit", {"{{career}}":
            _rate("leaderq_kafka_commit_seconds_total", "career")}),
        Panel("Passed over", "short", {"{{career}} {{action}}":
            _of("sum", "leaderq_kafka_poison_records_total", "career, action")}),
        Panel("Share of time held up", "percentunit", {"{{career}}":
            _rate("leaderq_kafka_held_up_seconds_total", "career")}),
        Panel("From a record's time stamp to its commit", "s", {"{{career}}":
            f"{_rate('leaderq_kafka_delay_seconds_total', 'career')}"
            f" / {_rate('leaderq_kafka_timed_records_total', 'career')}"}),
        Panel("Consumers replaced", "short", {"{{career}}":
            _of("sum", "leaderq_kafka_stalls_total", "career")}),
    ),
    "Queues": (
        Panel("Items", "short", {
            "ready {{queue}}": _of("max", "leaderq_queue_ready_items", "queue"),
            "in flight {{queue}}": _of("max", "leaderq_queue_in_flight_items", "queue"),
            "delayed {{queue}}": _of("max", "leaderq_queue_delayed_items", "queue"),
            "dead {{queue}}": _of("max", "leaderq_queue_dead_items", "queue")}),
        Panel("Oldest due item", "s", {"{{queue}}":
            _of("max", "leaderq_queue_oldest_due_age_seconds", "queue")}),
        Panel("Items a second", "ops", {
            "put {{queue}}": _rate("leaderq_queue_put_items_total", "queue"),
            "acknowledged {{queue}}": _rate("leaderq_queue_acknowledged_items_total", "queue"),
            "redelivered {{queue}}": _rate("leaderq_queue_redelivered_items_total", "queue")}),
    ),
    "Schedules": (
        Panel("Until the next tick", "s", {"{{schedule}}":
            "max by (schedule) (leaderq_schedule_next_tick_timestamp_seconds) - time()"}),
        Panel("Late", "s", {
            "overdue {{schedule}}": _of("max", "leaderq_schedule_overdue_seconds", "schedule"),
            "newest {{schedule}}": _of("max", "leaderq_schedule_lateness_seconds", "schedule")}),
        Panel("Ticks", "short", {
            "done {{schedule}}": _of("sum", "leaderq_schedule_done_ticks_total", "schedule"),
            "failed {{schedule}}": _of("sum", "leaderq_schedule_failed_ticks_total", "schedule"),
            "lost {{schedule}}": _of("sum", "leaderq_schedule_lost_ticks_total", "schedule")}),
    ),
    "Producers": (
        Panel("Requests that wait", "short", {
            "pending {{producer}}": _of("sum", "leaderq_producer_pending_requests", "producer"),
            "in memory {{producer}}": _of("sum", "leaderq_producer_memory_requests", "producer")}),
        Panel("Requests a second", "ops", {
            "accepted {{producer}}": _rate("leaderq_producer_accepted_requests_total", "producer"),
            "confirmed {{producer}}":
                _rate("leaderq_producer_confirmed_requests_total", "producer")}),
        Panel("Given up", "short", {
            "failed {{producer}}": _of("sum", "leaderq_producer_failed_requests_total", "producer"),
            "dropped {{producer}}":
                _of("sum", "leaderq_producer_dropped_requests_total", "producer")}),
    ),
}
# fmt: on


def dashboard() -> str:
    """Return the dashboard as JSON that Grafana (10 or later) imports."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, section in SECTIONS.items():
        place = {"h": 1, "w": 24, "x": 0, "y": y}
        panels.append(_numbered(panels, {"type": "row", "title": title, "gridPos": place}))
        for number, panel in enumerate(section):
            down, across = divmod(number, _COLUMNS)
            x, top = across * _WIDTH, y + 1 + down * _HEIGHT
            place = {"h": _HEIGHT, "w": _WIDTH, "x": x, "y": top}
            panels.append(_numbered(panels, {**_plot(panel), "gridPos": place}))
        y += 1 + -(-len(section) // _COLUMNS) * _HEIGHT
    whole = {
        "title": "leaderq",
        "uid": "leaderq",
        "tags": ["leaderq"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [_data_source(), _job()]},
        "panels": panels,
    }
    return json.dumps(whole, indent=1) + "\n"


def _plot(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": _SOURCE,
            "expr": selected(expr, 'job=~"$job"'),
            "legendFormat": legend,
        }
        for number, (legend, expr) in enumerate(panel.queries.items())
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
    }


def _numbered(panels: list[dict[str, Any]], panel: dict[str, Any]) -> dict[str, Any]:
    return {"id": len(panels) + 1, **panel}


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _job() -> dict[str, Any]:
    return {
        "name": "job",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(leaderq_leader, job)",
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
