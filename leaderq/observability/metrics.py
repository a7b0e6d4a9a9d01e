"""Metrics for Prometheus. Events are counted when they happen; all other values are read at a
scrape.

A scrape takes no lock that the work takes, and waits for nothing. ``prometheus_client`` (extra
``leaderq[metrics]``) is imported at the first scrape. Its default registry is served, so a career's
own metrics are in it, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from leaderq import events as happened
from leaderq.base import clock
from leaderq.errors import Reason
from leaderq.events import Event, Stage
from leaderq.observability.figures import FigureSource, read_figures
from leaderq.observability.health import Health, why_no_leader
from leaderq.observability.http import HttpReply, InBackground
from leaderq.threads import primitives

if TYPE_CHECKING:
    from prometheus_client import Metric

BUCKETS_S = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 86400.0)
_NOT_INSTALLED = "501 metrics need prometheus-client: pip install 'leaderq[metrics]'\n"
_CELLS = len(BUCKETS_S) + 2  # and those above the last bound, and the sum
_STAGES = tuple(stage.value for stage in Stage)
_SESSION_STATES = ("connected", "suspended", "lost", "closed")


@dataclass(frozen=True)
class MetricRow:
    """One metric. Its name tells its type: a counter (``_total``), a histogram
    (``_duration_seconds``) or else a gauge. ``label`` is a label in addition to that of the source;
    the label's ``values`` exist from the start. The metric's value is one of three things:

    * the number of ``events``; the attribute ``label`` of an event is then the label's value;
    * the figure that ``source`` offers as ``figure``, or as ``figure:VALUE`` for each value of
      ``label``;
    * with neither, a value that :class:`_CareerCounts` computes for a runner.
    """

    name: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    source: FigureSource | None = None
    figure: str = ""
    events: tuple[type[Event], ...] = ()

    @property
    def labels(self) -> list[str]:
        return [self.source.value if self.source else "career", *filter(None, [self.label])]


def _offered_by(source: FigureSource, prefix: str) -> Callable[[str, str, str], MetricRow]:
    def row(name: str, figure: str, help: str) -> MetricRow:
        figure, _, label = figure.partition(":")
        return MetricRow(f"leaderq_{prefix}_{name}", help, label, source=source, figure=figure)

    return row


def _counted(name: str, help: str, *events: type[Event], **more: Any) -> MetricRow:
    return MetricRow(f"leaderq_{name}", help, events=events, **more)


_drain = _offered_by(FigureSource.DRAIN, "kafka")
_queue = _offered_by(FigureSource.QUEUE, "queue")
_schedule = _offered_by(FigureSource.SCHEDULE, "schedule")
_producer = _offered_by(FigureSource.PRODUCER, "producer")
_coalescing = _offered_by(FigureSource.COALESCING, "coalescing")
_singular = _offered_by(FigureSource.SINGULAR, "singular")
_REASONS = tuple(reason.value for reason in Reason)
_DEPOSING = tuple(reason.value for reason in Reason if reason.deposes)
# A table: each row takes as few lines as it can.
# fmt: off
LEADER = MetricRow("leaderq_leader", "1 while this process works as the leader, as /leader says.")
READY = MetricRow("leaderq_ready", "1 while this process leads or can lead, as /readyz says.")
TERM_NUMBER = MetricRow("leaderq_term_number", "Number of the newest term won here; 0: none.")
UNCLEAN_ENDS = MetricRow(
    "leaderq_unclean_term_ends_total",
    "Terms of others that ended without a record, counted by the next leader.")
STAGES = MetricRow(
    "leaderq_stage_duration_seconds", "How long stages of terms took.",
    label="stage", values=_STAGES)
LEASE_MARGIN = MetricRow(
    "leaderq_lease_margin_seconds",
    "What is left of the lease; at 0 the leader is deposed. Only while leading.")
SESSION_TIMEOUT = MetricRow(
    "leaderq_session_timeout_seconds", "Session time-out that ZooKeeper granted (T).")
CONNECTED = MetricRow("leaderq_session_connected", "1 while the ZooKeeper session is connected.")
PAUSED = MetricRow("leaderq_work_paused", "1 while no new unit of work may begin.")
UNITS = MetricRow("leaderq_units_total", "Calls of execute that returned.")
LAG = MetricRow(
    "leaderq_kafka_lag_records",
    "Offsets between the committed ones and the ends, by topic, as of the last commit: it stands"
    " still during a batch. Only while leading.",
    label="topic")
TABLE: tuple[MetricRow, ...] = (
    LEADER, READY, TERM_NUMBER,
    _counted("terms_total", "Terms won.", happened.TermBegan),
    _counted("term_ends_total", "Terms that ended, by reason.", happened.TermEnded,
             label="reason", values=_REASONS),
    UNCLEAN_ENDS, STAGES, LEASE_MARGIN, SESSION_TIMEOUT, CONNECTED,
    _counted("session_changes_total", "Changes of the ZooKeeper session, by the new state.",
             happened.SessionChanged, label="state", values=_SESSION_STATES),
    PAUSED,
    _counted("work_pauses_total", "How many times the work was paused.", happened.WorkPaused),
    _counted("fence_refusals_total",
             "Calls of the career that its term refused because it was over, by reason.",
             happened.WorkRefused, label="reason", values=_DEPOSING),
    _counted("career_errors_total", "Errors that the career raised.", happened.CareerError,
             label="stage", values=_STAGES),
    _counted("missed_budgets_total", "Stages that took longer than their budget.",
             happened.BudgetMissed, label="stage", values=_STAGES),
    _counted("cool_offs_total", "Pauses before standing again, but planned ones.",
             happened.CoolingOff),
    UNITS,
    _counted("kafka_stalls_total", "Consumers that stood still and were rebuilt.",
             happened.DrainStalled),
    _counted("kafka_poison_records_total", "Records passed over, by what was done with them.",
             happened.RecordSkipped, happened.RecordDeadLettered,
             label="action", values=("skip", "dead-letter")),
    LAG,
    _drain("records_total", "records", "Records handled, those repeated too."),
    _drain("batches_total", "batches", "Batches handled."),
    _drain("commits_total", "commits", "Commits of offsets of handled records."),
    _drain("commit_seconds_total", "commit_s", "Time spent on storing offsets."),
    _drain("timed_records_total", "timed",
           "Records whose delay was taken: the first of each partition of a batch."),
    _drain("delay_seconds_total", "delay_s",
           "Time from their time stamps to their commits, added up over the timed records."),
    _drain("held_up_seconds_total", "held_up_s", "Time for which records held the work up."),
    _queue("put_items_total", "put", "Items put."),
    _queue("pending_puts", "pending_puts", "Items accepted and not stored yet."),
    _queue("taken_items_total", "taken", "Items handed to consumers of this process."),
    _queue("held_items", "held", "Items handed out and not settled yet."),
    _queue("acknowledged_items_total", "acknowledged", "Items acknowledged and deleted."),
    _queue("returned_items_total", "returned", "Items returned to be delivered again."),
    _queue("dead_letters_total", "dead_letters", "Items set aside."),
    _queue("redelivered_items_total", "redelivered", "Items handed out that had been before."),
    _queue("timeouts_total", "timeouts", "Items taken from consumers that died or took too long."),
    _queue("lost_leases_total", "lost", "Items that this process had, and another has now."),
    _queue("ready_items", "ready", "Items that may be handed out now, as a consumer here sees."),
    _queue("delayed_items", "delayed", "Items that are due later, or rest after a failure."),
    _queue("in_flight_items", "in_flight", "Items that some consumer has."),
    _queue("dead_items", "dead", "Dead letters."),
    _queue("oldest_due_age_seconds", "oldest_due_s", "How long the oldest ready item has been so."),
    _schedule("done_ticks_total", "done", "Ticks whose work returned."),
    _schedule("failed_ticks_total", "failed", "Ticks whose work raised an error."),
    _schedule("interrupted_ticks_total", "interrupted", "Ticks whose term ended meanwhile."),
    _schedule("lost_ticks_total", "lost", "Ticks begun by earlier leaders, and not run again."),
    _schedule("passed_over_ticks_total", "passed", "Ticks that were not run, with a reason."),
    _schedule("work_seconds_total", "work_s", "Time spent on the work of ticks."),
    _schedule("lateness_seconds", "late_s", "How late the newest tick began."),
    _schedule("overdue_seconds", "overdue_s", "Age of the oldest tick that is due and not begun."),
    _schedule("next_tick_timestamp_seconds", "next_s", "When the next tick is due."),
    _producer("accepted_requests_total", "accepted", "Requests accepted."),
    _producer("recovered_requests_total", "recovered", "Requests found in the journal."),
    _producer("confirmed_requests_total", "confirmed", "Requests that the sink acknowledged."),
    _producer("dropped_requests_total", "dropped", "Requests dropped by a policy."),
    _producer("failed_requests_total", "failed", "Requests given up because they failed."),
    _producer("refused_requests_total", "refused", "Requests that were not accepted."),
    _producer("lost_requests_total", "lost:reason", "Requests dropped or failed, by reason."),
    _producer("pending_requests", "pending", "Requests accepted, and neither sent nor given up."),
    _producer("state", "state:state", "1 for the state that says where a new request goes."),
    _producer("journal_takes", "takes", "1 while its journal takes requests, or it has none."),
    _producer("memory_requests", "memory_items", "Requests in memory."),
    _producer("memory_bytes", "memory_bytes", "Bytes of the requests in memory."),
    _producer("journal_bytes", "journal_bytes", "Bytes of the journal."),
    _producer("oldest_request_age_seconds", "oldest_age_s", "Age of the oldest request."),
    _producer("batches_total", "batches", "Batches that the sink took."),
    _producer("retries_total", "retries", "Batches sent again."),
    _producer("spills_total", "spilled", "How many times spilling to the journal began."),
    _coalescing("runs_total", "runs", "Runs begun."),
    _coalescing("declined_requests_total", "declined",
                "Requests that the run of another covers: runs saved."),
    _coalescing("blocked_requests_total", "blocked", "Requests that had to wait."),
    _coalescing("withdrawn_requests_total", "withdrawn", "Requests that gave up waiting."),
    _coalescing("repeated_runs_total", "repeated", "Runs for requests whose waiter gave up."),
    _coalescing("evicted_runs_total", "evicted", "Runs that outlived the safe time-out."),
    _coalescing("running_keys", "running", "Keys that somebody works on."),
    _coalescing("waiting_requests", "waiting", "Requests that wait for their turn."),
    _coalescing("owed_requests", "owed", "Requests that nobody has covered yet."),
    _singular("accepted_requests_total", "accepted", "Requests accepted."),
    _singular("applied_requests_total", "applied", "Requests applied."),
    _singular("failed_requests_total", "failed", "Requests for which the handler raised."),
    _singular("expired_requests_total", "expired", "Requests not begun by their deadline."),
    _singular("cancelled_requests_total", "cancelled", "Requests cancelled before they began."),
    _singular("refused_requests_total", "refused", "Requests that were not accepted."),
    _singular("waiting_requests", "depth", "Requests that wait."),
    _singular("held_requests", "in_hand", "Requests that the handler works on."),
    _singular("waiting_producers", "waiting", "Producers that wait for room."),
)
# fmt: on

_COUNTED = {kind: row for row in TABLE for kind in row.events}


class Metrics:
    """A collector of ``prometheus_client``: for the runners of a process, and for all offered
    figures.

    Make it before the runners run, because it does not count earlier events.
    """

    def __init__(self, *careers: Health) -> None:
        self._careers = [_CareerCounts(health) for health in careers]

    def route(self) -> InBackground:
        """A route for an :class:`~leaderq.observability.http.HttpEndpoint`, of all that the
        registry of ``prometheus_client`` has. It answers 501 if that is not installed.
        """
        registered: list[Metrics] = []

        def scrape() -> HttpReply:
            try:
                import prometheus_client as client
            except ImportError:
                return HttpReply(501, _NOT_INSTALLED)
            if not registered:
                client.REGISTRY.register(self)
                registered.append(self)
            return HttpReply(200, client.generate_latest(), client.CONTENT_TYPE_LATEST)

        return InBackground(scrape)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric that has a value."""
        from prometheus_client import core

        samples: dict[str, dict[tuple[str, ...], float]] = {row.name: {} for row in TABLE}
        for counts in self._careers:
            for row, labels, value in counts.samples():
                samples[row.name][labels] = value
        for row, labels, value in _offered():
            samples[row.name][labels] = value
        for row in TABLE:
            if row is STAGES:
                family = core.HistogramMetricFamily(row.name, row.help, labels=row.labels)
                for counts in self._careers:
                    for labels, buckets, sum_s in counts.stages():
                        family.add_metric(labels, buckets, sum_s)
                yield family
            elif samples[row.name]:
                kind = core.CounterMetricFamily if is_counter(row) else core.GaugeMetricFamily
                plain = kind(row.name, row.help, labels=row.labels)
                for each, value in samples[row.name].items():
                    plain.add_metric(each, value)
                yield plain


Sample = tuple[MetricRow, tuple[str, ...], float]


def _offered() -> Iterator[Sample]:
    offered = read_figures()
    for row in TABLE:
        for (source, name), figures in offered.items():
            for figure, value in figures.items() if source is row.source else ():
                offered_as, _, label = figure.partition(":")
                if offered_as == row.figure:
                    yield row, (name, label) if row.label else (name,), value


class _CareerCounts:
    """Counts the events of one runner."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._career = health.look().career
        self._lock = primitives.Lock()  # among the work's threads; a scrape copies without it
        rows = {UNCLEAN_ENDS, *_COUNTED.values()}
        self._counts = Counter({(row, value): 0 for row in rows for value in row.values})
        self._stage: tuple[Stage, float] | None = None
        self._stages: dict[str, tuple[float, ...]] = dict.fromkeys(_STAGES, (0.0,) * _CELLS)
        self._term_number = 0
        self._lag: Mapping[str, int] = {}
        events = health.events
        for kind in _COUNTED:
            events.subscribe(kind, self._count)
        events.subscribe(happened.TermBegan, self._term_began)
        events.subscribe(happened.StageBegan, lambda event: self._enter(event.stage))
        events.subscribe(happened.TermEnded, self._term_ended)
        events.subscribe(happened.DrainProgress, self._drained)

    # ---- events, on the work's threads ----------------------------------------------------------

    def _count(self, event: Event) -> None:
        row = _COUNTED[type(event)]
        value = getattr(event, row.label) if row.label else ""
        with self._lock:
            self._counts[row, value.value if isinstance(value, Enum) else value] += 1

    def _term_began(self, event: happened.TermBegan) -> None:
        self._term_number = event.term
        if event.unclean:
            with self._lock:
                self._counts[UNCLEAN_ENDS, ""] += 1

    def _term_ended(self, event: happened.TermEnded) -> None:
        self._enter(None)
        self._lag = {}

    def _enter(self, stage: Stage | None) -> None:
        with self._lock:
            left, self._stage = self._stage, None if stage is None else (stage, clock.now_s())
            if left is not None:
                took_s, cells = clock.now_s() - left[1], list(self._stages[left[0].value])
                cells[bisect_left(BUCKETS_S, took_s)] += 1
                cells[-1] += took_s
                self._stages[left[0].value] = tuple(cells)  # at once: a scrape takes no lock

    def _drained(self, event: happened.DrainProgress) -> None:
        lag: Counter[str] = Counter()
        for partition, left in event.partitions.items():
            lag[partition.rpartition("-")[0]] += left
        self._lag = lag

    # ---- scrapes --------------------------------------------------------------------------------

    def samples(self) -> Iterator[Sample]:
        """Yield every value except those of :meth:`stages`."""
        for (row, value), count in self._counts.copy().items():
            yield row, (self._career, value) if row.label else (self._career,), count
        for row, gauge in self._gauges():
            yield row, (self._career,), gauge
        for topic, left in self._lag.items():
            yield LAG, (self._career, topic), left

    def _gauges(self) -> Iterator[tuple[MetricRow, float]]:
        state = self._health.look()
        yield LEADER, why_no_leader(state) is None
        yield READY, self._health.why_unready() is None
        yield TERM_NUMBER, self._term_number
        yield SESSION_TIMEOUT, state.timeout_s
        yield CONNECTED, state.session == "connected"
        yield UNITS, state.units
        yield PAUSED, state.term is not None and state.term.paused
        if state.term is not None:
            yield LEASE_MARGIN, state.term.lease_s

    def stages(self) -> Iterator[tuple[tuple[str, str], list[tuple[str, float]], float]]:
        """For each stage, yield its labels, its cumulative buckets, and the sum in seconds."""
        bounds = [*map(str, BUCKETS_S), "+Inf"]
        for stage, (*counts, sum_s) in self._stages.items():
            yield (self._career, stage), list(zip(bounds, accumulate(counts), strict=True)), sum_s


def is_counter(row: MetricRow) -> bool:
    """Whether the metric only grows, as the ending of its name says."""
    return row.name.endswith("_total")
