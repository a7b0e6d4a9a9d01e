"""The spans that end within a test, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from leaderq.observability import tracing

Spans = Callable[..., list[ReadableSpan]]
_exporters: list[InMemorySpanExporter] = []


def exporter() -> InMemorySpanExporter:
    """The one of this process: a provider cannot be replaced."""
    if not _exporters:
        provider = TracerProvider()
        _exporters.append(InMemorySpanExporter())
        provider.add_span_processor(SimpleSpanProcessor(_exporters[0]))
        trace.set_tracer_provider(provider)
    return _exporters[0]


@pytest.fixture
def spans(monkeypatch) -> Iterator[Spans]:
    """Trace within the test, with all links, however busy the machine is; call it for the spans
    that have ended, whose names begin so.
    """
    monkeypatch.setattr(tracing, "LINKS_SHARE", 1.0)
    monkeypatch.setattr(tracing, "_SAVED_S", 60.0)
    exporter().clear()
    tracing.start()
    yield lambda name="": [
        span for span in exporter().get_finished_spans() if span.name.startswith(name)
    ]
    tracing.stop()


def linked(span: ReadableSpan) -> list[int]:
    """The ids of the spans that it is linked to."""
    return [link.context.span_id for link in span.links]
