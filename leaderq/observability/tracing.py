"""Traces with OpenTelemetry's API: who led, what was handled, and what caused it.

Tracing is off by default: then nothing of OpenTelemetry is imported, and each hook only reads one
variable. The setting ``tracing``, or :func:`start`, turns it on. Spans go wherever the program has
configured OpenTelemetry's SDK; without an SDK they go nowhere.

* Each term is a span, also the term of a ``session.leadership`` block. The stages of a term are its
  children. A tick is a span of its own, and is current while its work runs.
* Each call of a handler (for a batch of records, one record, a message, items of a queue) is a span
  of its own, ``process DESTINATION``, and is current during the call. It is linked to the sender of
  each record, once for each sender; it has no parent, because a batch holds records of many
  senders. Links take at most a hundredth of the time (:class:`LinkTime`): if no time is left for
  a call, its span has no links, and says so.
* What a handler sends (``produce``, a Dyno message, an item of a queue, a request of a buffered
  producer into a ``KafkaSink``) is a child, ``send DESTINATION``. Its context travels in W3C's
  format, in the headers or in the item's note. Headers that already carry a context are left alone.
  A buffered producer keeps the context in memory: requests that it reads from its journal have no
  context, and neither have records that a ``process`` step makes.

The names follow OpenTelemetry's messaging conventions, whose status is still "development".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.metadata import version
from operator import attrgetter
from typing import Any

from leaderq.base import clock
from leaderq.errors import MissingPiece, Reason, told
from leaderq.events import (
    CareerError,
    Event,
    EventBus,
    StageBegan,
    TermBegan,
    TermEnded,
    TermEnding,
    TickBegan,
    TickEnded,
    WorkPaused,
    WorkResumed,
)
from leaderq.threads import primitives

_OFF: AbstractContextManager[None] = nullcontext()
_CARRIED = "_leaderq_trace"  # an attribute of errors: the context of the span that they ended
_TRACEPARENT = "traceparent"
UNLINKED = "leaderq.links_left_out"
"""The attribute of a handler's span for whose links no time was left."""
LINKS_SHARE = 0.01
_SAVED_S = 0.005
Headers = Sequence[tuple[str, Any]]
_headers_of = attrgetter("headers")
_topic_of = attrgetter("topic")


class LinkTime:
    """Limits the time that links take to a share of all time. Unused time is saved, up to 5 ms.

    Links cost some microseconds a record: to look for the contexts of a batch, to make the links,
    and to make a span that has them. At the full speed of a drain that would be a fifth of the time
    or more. If the work takes longer, or fewer records come, all calls have their links. Threads
    share this object without a lock; the time may be wrong by what one call takes.
    """

    def __init__(self) -> None:
        self._left_s, self._at_s = _SAVED_S, clock.now_s()

    def is_left(self, now_s: float) -> bool:
        saved_s = self._left_s + LINKS_SHARE * (now_s - self._at_s)
        self._left_s, self._at_s = min(_SAVED_S, saved_s), now_s
        return self._left_s > 0

    def spend(self, took_s: float) -> None:
        self._left_s -= took_s


class Tracer:
    """The part of OpenTelemetry's API that leaderq uses."""

    def __init__(self) -> None:
        try:
            from opentelemetry import context, trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            what = "tracing needs opentelemetry-api; run: pip install 'leaderq[tracing]'"
            raise MissingPiece(what) from error
        self.context, self.trace = context, trace
        self._tracer = trace.get_tracer("leaderq", version("leaderq"))
        self._format = TraceContextTextMapPropagator()
        self._names = self._format.fields
        # The SDK drops links above its limit; so many need not be made.
        limit = os.environ.get("OTEL_SPAN_LINK_COUNT_LIMIT", "")
        self._most_links = int(limit) if limit.isdecimal() else 128
        self._link_time = LinkTime()

    def root(self, name: str, attributes: Mapping[str, Any], **more: Any) -> Any:
        """Begin a span without a parent; the caller ends it."""
        empty = self.context.Context()
        return self._tracer.start_span(name, context=empty, attributes=attributes, **more)

    def child(self, parent: Any, name: str, attributes: Mapping[str, Any]) -> Any:
        within = self.trace.set_span_in_context(parent, self.context.Context())
        return self._tracer.start_span(name, context=within, attributes=attributes)

    @contextmanager
    def processing(
        self,
        system: str,
        destination: str | None,
        headers: Iterable[Headers],
        attributes: dict[str, Any],
    ) -> Iterator[None]:
        """Make the span of a handler's call; it is current within the block. An error that ends the
        block carries the span's context from then on.
        """
        named = _named(system, "process", "process", destination) | attributes
        name = f"process {destination}" if destination else "process"
        kind = self.trace.SpanKind.CONSUMER
        began_s = clock.now_s()
        if self._link_time.is_left(began_s):
            # The SDK copies links as it starts the span, which takes a seventh of their time.
            span = self.root(name, named, kind=kind, links=self._links(headers))
            self._link_time.spend(clock.now_s() - began_s)
        else:
            span = self.root(name, named | {UNLINKED: True}, kind=kind)
        try:
            with self.trace.use_span(span, record_exception=False, set_status_on_exception=False):
                try:
                    yield
                except Exception as error:
                    self.mark_failed(span, error)
                    self._remember(error)
                    raise
        finally:
            span.end()  # also after what is not an Exception

    def sent(self, system: str, destination: str, given: Iterable[str]) -> dict[str, str]:
        """Make a span for one message, and return the span's context, as headers to add to the
        message. ``given`` are the names of its headers: if one of them carries a context, return no
        headers.
        """
        if not self._names.isdisjoint(given):
            return {}
        named = _named(system, "send", "send", destination)
        kind = self.trace.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(f"send {destination}", kind=kind, attributes=named):
            return self._carrier()

    def mark_failed(self, span: Any, error: BaseException) -> None:
        """Tell ``span`` of the error that ended its work; also of one whose text cannot be had."""
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(self.trace.StatusCode.ERROR, told(error))
        with suppress(Exception):  # the SDK asks for its text
            span.record_exception(error)

    def _links(self, headers: Iterable[Headers]) -> list[Any]:
        """One link to each sender whose context is in the headers of a record."""
        empty, found = self.context.Context(), {}
        for pairs in dict.fromkeys(map(tuple, filter(None, headers))):
            carrier = {name: _text(value) for name, value in pairs if name in self._names}
            if not carrier:
                continue
            within = self._format.extract(carrier, context=empty)
            sender = self.trace.get_current_span(within).get_span_context()
            if sender.is_valid:
                found[sender.trace_id, sender.span_id] = sender
            if len(found) >= self._most_links:
                break
        return [self.trace.Link(sender) for sender in found.values()]

    def _carrier(self) -> dict[str, str]:
        carrier: dict[str, str] = {}
        self._format.inject(carrier)
        return carrier

    def _remember(self, error: BaseException | None) -> None:
        seen = set()  # an error may be its own cause
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            with suppress(AttributeError, TypeError):  # an error with slots
                setattr(error, _CARRIED, self._carrier())
            error = error.__cause__


def _text(value: bytes | str | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


def _named(system: str, name: str, kind: str, destination: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.system": system,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    return found if destination is None else {**found, "messaging.destination.name": destination}


_tracer: Tracer | None = None


def start() -> None:
    """Trace from now on, in this process.

    :raises MissingPiece: opentelemetry-api is not installed.
    """
    global _tracer
    _tracer = _tracer or Tracer()


def stop() -> None:
    """Stop tracing; spans that have begun are ended as usual."""
    global _tracer
    _tracer = None


# ---- hooks, where handlers are called and messages made ------------------------------------------


def of_records(
    records: Sequence[Any], term: Any, group: str, topics: object
) -> AbstractContextManager[None]:
    """The span of one call of ``handle``; the career reads ``topics`` in the consumer group
    ``group``.
    """
    if (tracer := _tracer) is None:
        return _OFF
    about: dict[str, Any] = {"leaderq.career": term.career, "leaderq.term": term.number}
    about["messaging.consumer.group.name"] = group
    first = records[0]
    if len(records) == 1:
        topics = {first.topic}
        about["messaging.destination.partition.id"] = str(first.partition)
        about["messaging.kafka.offset"] = first.offset
    else:
        about["messaging.batch.message_count"] = len(records)
        if not (isinstance(topics, tuple) and len(topics) == 1):
            topics = set(map(_topic_of, records))
    topic = first.topic if len(topics) == 1 else None
    return tracer.processing("kafka", topic, map(_headers_of, records), about)


def of_messages(deliveries: Sequence[Any], queue: str) -> AbstractContextManager[None]:
    """The span of one call of a handler of Dyno messages."""
    if (tracer := _tracer) is None:
        return _OFF
    about: dict[str, Any] = {"messaging.message.id": deliveries[0].id}
    if len(deliveries) > 1:
        about = {"messaging.batch.message_count": len(deliveries)}
    headers = ([*one.headers.items()] for one in deliveries)
    return tracer.processing("leaderq_dyno", queue, headers, about)


def of_items(
    claims: Sequence[Any], queue: str, count: int, *, is_batch: bool
) -> AbstractContextManager[None]:
    """The span around a consumer of ``count`` items of a queue, linked to what put them, which the
    notes of their claims tell. An error that leaves the block marks the span as failed.
    """
    if (tracer := _tracer) is None:
        return _OFF
    about = {"messaging.batch.message_count": count} if is_batch else {}
    traces = (one.note.trace for one in claims)
    headers = ([(_TRACEPARENT, trace)] for trace in traces if trace is not None)
    return tracer.processing("leaderq_queue", queue, headers, about)


def sent_record(topic: str, headers: Headers) -> Headers:
    """The headers of a record that is sent: ``headers``, and the context of the record's span."""
    if (tracer := _tracer) is None:
        return headers
    carried = tracer.sent("kafka", topic, [name for name, _ in headers])
    return [*headers, *((name, text.encode()) for name, text in carried.items())]


def sent_message(queue: str, headers: Mapping[str, str]) -> Mapping[str, str]:
    """The headers of a Dyno message that is pushed: ``headers``, and the context of the message's
    span.
    """
    if (tracer := _tracer) is None:
        return headers
    return {**headers, **tracer.sent("leaderq_dyno", queue, headers)}


def sent_item(queue: str) -> str | None:
    """The context of the span of an item that is put, for the item's note; ``None`` if it is not
    traced.
    """
    if (tracer := _tracer) is None:
        return None
    return tracer.sent("leaderq_queue", queue, ()).get(_TRACEPARENT)


def is_within_span() -> bool:
    """Whether tracing is on, and a span is current."""
    if (tracer := _tracer) is None:
        return False
    return bool(tracer.trace.get_current_span().get_span_context().is_valid)


def carried_by(error: BaseException) -> Mapping[str, str]:
    """The context of the handler's span that ``error`` ended; empty if nothing traced it."""
    found: Mapping[str, str] = vars(error).get(_CARRIED, {})  # its __getattr__ may say anything
    return found


# ---- terms, stages and ticks, as events tell of them ---------------------------------------------


def follow(events: EventBus, career: str, candidate: str) -> Callable[[], None]:
    """Make spans of the terms, stages and ticks of this candidate, if tracing is on. Return a
    function that stops this, and ends the spans of the term.
    """
    if (tracer := _tracer) is None:
        return lambda: None
    followed = CandidateSpans(tracer)

    def hear(event: Any) -> None:
        if (event.career, event.candidate) == (career, candidate):  # others may share the bus
            followed.listeners[type(event)](event)

    unsubscribe = [events.subscribe(kind, hear) for kind in followed.listeners]

    def end() -> None:
        for one in unsubscribe:
            one()
        followed.close()

    return end


class CandidateSpans:
    """The open spans of one candidate: one term, one stage, and its ticks. Events must come in
    order.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._term: Any = None
        self._stage: Any = None
        self._has_failed = False
        self._ticks: dict[tuple[str, str], tuple[Any, Any, int]] = {}
        self.listeners: dict[type[Event], Callable[[Any], None]] = {
            TermBegan: self._begin,
            StageBegan: self._enter,
            CareerError: self._failed,
            TermEnding: self._tell,
            WorkPaused: self._tell,
            WorkResumed: self._tell,
            TermEnded: self._end,
            TickBegan: self._begin_tick,
            TickEnded: self._end_tick,
        }

    def _begin(self, event: TermBegan) -> None:
        about = _about(event) | {"leaderq.unclean": event.unclean}
        self._term, self._has_failed = self._tracer.root(f"term {event.career}", about), False

    def _enter(self, event: StageBegan) -> None:
        self._leave()
        if self._term is not None:
            stage = event.stage.value
            self._stage = self._tracer.child(self._term, f"{stage} {event.career}", _about(event))

    def _leave(self) -> None:
        if self._stage is not None:
            self._stage.end()
        self._stage = None

    def _failed(self, event: CareerError) -> None:
        self._has_failed = True
        for span in filter(None, (self._stage, self._term)):
            self._tracer.mark_failed(span, event.error)

    def _tell(self, event: Any) -> None:
        if self._term is not None:
            reason = getattr(event, "reason", None)
            why = getattr(event, "why", None) or (reason.sentence if reason else "")
            self._term.add_event(event.name, {"why": why} if why else {})

    def _end(self, event: TermEnded) -> None:
        if self._term is not None:
            ended = {"leaderq.reason": event.reason.value, "leaderq.clean": event.clean}
            self._term.set_attributes(ended)
            if event.reason is Reason.FAILED and not self._has_failed:  # in a block of the user's
                self._term.set_status(self._tracer.trace.StatusCode.ERROR, event.reason.sentence)
        self.close()

    def close(self) -> None:
        """End the spans of the term and its stage, if they are open."""
        self._leave()
        if self._term is not None:
            self._term.end()
        self._term = None

    def _begin_tick(self, event: TickBegan) -> None:
        about = _about(event) | {
            "leaderq.schedule": event.schedule,
            "leaderq.tick": event.at,
            "leaderq.tick.attempt": event.attempt,
            "leaderq.tick.missed": event.missed,
        }
        span = self._tracer.root(f"tick {event.schedule}", about)
        within = self._tracer.trace.set_span_in_context(span)
        token = self._tracer.context.attach(within)
        self._ticks[event.schedule, event.at] = span, token, primitives.get_ident()

    def _end_tick(self, event: TickEnded) -> None:
        found = self._ticks.pop((event.schedule, event.at), None)
        if found is None:
            return  # begun by an earlier leader
        span, token, thread = found
        span.set_attribute("leaderq.outcome", event.outcome)
        if event.error is not None:
            self._tracer.mark_failed(span, event.error)
        span.end()
        if thread == primitives.get_ident():  # on an event loop the context is a copy
            self._tracer.context.detach(token)


def _about(event: Any) -> dict[str, Any]:
    return {
        "leaderq.career": event.career,
        "leaderq.candidate": event.candidate,
        "leaderq.term": event.term,
    }
