"""Alerts for Prometheus: one table, and the rule file that is written from it.

The expressions use metrics of :data:`leaderq.observability.metrics.TABLE`. A unit test makes the
fault of each alert, and asks promtool whether the alert fires and clears.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum

REMEMBERED = "1d"
"""For how long a career counts as missing after its last candidate was seen."""


class Severity(str, Enum):
    """Who should look, and when."""

    PAGE = "page"
    """Somebody, now: the work stands still, or is lost."""
    TICKET = "ticket"
    """Somebody, today."""


@dataclass(frozen=True)
class Alert:
    """One rule. ``name`` says what is wrong; the alert's full name is ``Leaderq`` and ``name``.
    ``expr`` is true while it is wrong; it must be true for ``hold``, written as Prometheus writes
    durations. ``summary`` may name labels; ``remedy`` says what to look at first.
    """

    name: str
    expr: str
    hold: str
    severity: Severity
    summary: str
    remedy: str


def _happened(metric: str, by: str, window: str = "15m") -> str:
    """An expression that is true if a counter grew within ``window``, or appeared with a value
    above zero: the process that counts may have begun after the one that failed.
    """
    grew = f"sum by ({by}) (increase({metric}[{window}])) > 0"
    came = f"sum by ({by}) ({metric} unless {metric} offset {window}) > 0"
    return f"{grew} or {came}"


ALERTS: tuple[Alert, ...] = (
    Alert(
        "NobodyLeads",
        "max by (career) (leaderq_leader) == 0"
        f" or max by (career) (max_over_time(leaderq_leader[{REMEMBERED}]))"
        " unless max by (career) (leaderq_leader)",
        "1m",
        Severity.PAGE,
        "nobody leads {{ $labels.career }}",
        "leaderq status says why: no candidate stands, one cools off after an error, or the work"
        " of inaugurate takes long",
    ),
    Alert(
        "NoSuccessor",
        "sum by (career) (leaderq_ready) == 1 and max by (career) (leaderq_leader) == 1",
        "1h",
        Severity.TICKET,
        "nobody would take {{ $labels.career }} over",
        "start a second candidate, or see in leaderq members why it does not stand",
    ),
    Alert(
        "LeaderDied",
        _happened("leaderq_unclean_term_ends_total", "career"),
        "0s",
        Severity.TICKET,
        "a leader of {{ $labels.career }} was killed, or cut off",
        "leaderq history names it; look for its host, for the kernel's OOM killer, and in its log",
    ),
    Alert(
        "CareerFails",
        'sum by (career) (increase(leaderq_career_errors_total{stage!="hand-over"}[15m])) >= 3',
        "0s",
        Severity.PAGE,
        "{{ $labels.career }} fails again and again",
        "the log has the error, and leaderq status its last line",
    ),
    Alert(
        "BudgetMissed",
        _happened("leaderq_missed_budgets_total", "career"),
        "0s",
        Severity.TICKET,
        "a stage of {{ $labels.career }} took longer than its budget",
        "the log names the stage and what its thread was doing",
    ),
    Alert(
        "LeaseRunsLow",
        "min by (career) (leaderq_lease_margin_seconds / leaderq_session_timeout_seconds) < 0.15",
        "1m",
        Severity.TICKET,
        "the leader of {{ $labels.career }} hardly keeps its lease",
        "its process, or the ZooKeeper servers, are too slow or stand still for seconds;"
        " see leaderq doctor",
    ),
    Alert(
        "SessionLost",
        _happened('leaderq_session_changes_total{state="lost"}', "career"),
        "0s",
        Severity.TICKET,
        "a candidate of {{ $labels.career }} lost its ZooKeeper session",
        "it was cut off, or stood still, for longer than the session time-out",
    ),
    Alert(
        "DrainStandsStill",
        "sum by (career) (leaderq_kafka_lag_records) > 0"
        " and sum by (career) (increase(leaderq_kafka_commits_total[10m])) == 0",
        "10m",
        Severity.PAGE,
        "{{ $labels.career }} has records and commits nothing",
        "leaderq status says what holds it up: a record, a store, an open transaction, or one"
        " long call of handle",
    ),
    Alert(
        "RecordsLate",
        "sum by (career) (increase(leaderq_kafka_delay_seconds_total[10m]))"
        " / sum by (career) (increase(leaderq_kafka_timed_records_total[10m])) > 900",
        "10m",
        Severity.TICKET,
        "{{ $labels.career }} commits records {{ $value | humanizeDuration }} after their time",
        "it reads what is old, or does not keep up: leaderq status says how fast it goes, and when"
        " it will have caught up",
    ),
    Alert(
        "ConsumerStalls",
        _happened("leaderq_kafka_stalls_total", "career"),
        "0s",
        Severity.TICKET,
        "a consumer of {{ $labels.career }} stood still and was replaced",
        "look at the brokers and at the network between them and the leader",
    ),
    Alert(
        "HeldUp",
        "sum by (career) (increase(leaderq_kafka_held_up_seconds_total[10m])) > 300",
        "0s",
        Severity.PAGE,
        "records hold {{ $labels.career }} up",
        "leaderq status names the record and its error; if the record is at fault,"
        " leaderq dead bury lets it pass",
    ),
    Alert(
        "RecordsSetAside",
        _happened("leaderq_kafka_poison_records_total", "career"),
        "0s",
        Severity.TICKET,
        "{{ $labels.career }} passed records over",
        "leaderq dead ls lists them, leaderq dead replay sends them back",
    ),
    Alert(
        "DeadLetters",
        _happened("leaderq_queue_dead_letters_total", "queue"),
        "0s",
        Severity.TICKET,
        "items of queue {{ $labels.queue }} were set aside",
        "leaderq queue dead lists them, leaderq queue requeue sends them back",
    ),
    Alert(
        "QueueWaits",
        "max by (queue) (leaderq_queue_oldest_due_age_seconds) > 600",
        "5m",
        Severity.PAGE,
        "an item of queue {{ $labels.queue }} has been due for {{ $value | humanizeDuration }}",
        "leaderq queue ls shows its consumers and whether it is paused",
    ),
    Alert(
        "TickMissed",
        "max by (schedule) (leaderq_schedule_overdue_seconds) > 300",
        "0s",
        Severity.PAGE,
        "schedule {{ $labels.schedule }} is {{ $value | humanizeDuration }} late",
        "leaderq schedule ls says whether it is paused, and who works on a tick",
    ),
    Alert(
        "TickFailed",
        f"({_happened('leaderq_schedule_failed_ticks_total', 'schedule', '1h')})"
        f" or ({_happened('leaderq_schedule_lost_ticks_total', 'schedule', '1h')})",
        "0s",
        Severity.TICKET,
        "a tick of {{ $labels.schedule }} failed, or was lost with its leader",
        "leaderq schedule history shows which, and why",
    ),
    Alert(
        "ProducerStandsStill",
        "max by (producer) (leaderq_producer_oldest_request_age_seconds) > 300"
        " and sum by (producer) (increase(leaderq_producer_confirmed_requests_total[5m])) == 0",
        "1m",
        Severity.PAGE,
        "producer {{ $labels.producer }} has sent nothing for minutes",
        "its sink is away: the log says why. Requests wait in memory, or in the journal",
    ),
    Alert(
        "JournalTakesNothing",
        "min by (producer) (leaderq_producer_journal_takes) == 0",
        "1m",
        Severity.PAGE,
        "the journal of producer {{ $labels.producer }} takes no more requests",
        "it is as large as it may be, or its disk is full: the log says which. What comes now waits"
        " in memory, and is then refused or dropped",
    ),
    Alert(
        "RequestsLost",
        f"({_happened('leaderq_producer_failed_requests_total', 'producer')})"
        f" or ({_happened('leaderq_producer_dropped_requests_total', 'producer')})",
        "0s",
        Severity.PAGE,
        "producer {{ $labels.producer }} gave requests up",
        "the log has the reason and the number of each",
    ),
)


def rule_file(job: str = "") -> str:
    """Return the rules as a file for Prometheus (YAML). ``job`` is a regular expression; the rules
    look only at series of these jobs.
    """
    chosen = f"job=~{json.dumps(job)}" if job else ""
    lines = ["groups:", "  - name: leaderq", "    rules:"]
    for one in ALERTS:
        lines += [
            f"      - alert: Leaderq{one.name}",
            f"        expr: {json.dumps(selected(one.expr, chosen))}",
            f"        for: {one.hold}",
            f"        labels: {{severity: {one.severity.value}}}",
            "        annotations:",
            f"          summary: {json.dumps(one.summary)}",
            f"          description: {json.dumps(one.remedy)}",
        ]
    return "\n".join(lines) + "\n"


def selected(expr: str, chosen: str) -> str:
    """``expr``, limited to the series whose labels match ``chosen``."""

    def narrowed(found: re.Match[str]) -> str:
        matchers = ",".join(filter(None, [found[3], chosen]))
        return f"{found[1]}{{{matchers}}}" if matchers else found[1]

    return re.sub(r"(leaderq_[a-z_]+)(\{([^}]*)\})?", narrowed, expr)
