"""The spans of blocks that lead in a user's own program."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.trace import StatusCode
from traces import spans as spans

from leaderq.events import Event, EventBus


def test_each_term_of_a_block_is_a_span_with_its_stage_also_on_a_shared_bus(session, spans):
    events = EventBus()
    block = session.leadership("c", id="a", events=events)
    for _ in range(2):
        with block, session.leadership("other", id="a", events=events):
            pass
    terms, stages = spans("term c"), spans("execution c")
    assert [one.attributes["leaderq.term"] for one in terms] == [1, 2]
    assert [one.parent.span_id for one in stages] == [one.context.span_id for one in terms]
    assert {one.attributes["leaderq.reason"] for one in terms} == {"withdrawn"}
    assert len(spans("term other")) == len(spans("execution other")) == 2
    assert {span.status.status_code for span in spans()} == {StatusCode.UNSET}
    kinds = [kind for kind, _ in events._listeners._entries]
    assert kinds == [Event]  # the log; nobody else is left


def test_a_body_that_raises_marks_its_term(session, spans):
    with pytest.raises(ValueError, match="no such customer"), session.leadership("c"):
        raise ValueError("no such customer")
    (term,) = spans("term c")
    assert term.status.status_code is StatusCode.ERROR
    assert term.attributes["leaderq.reason"] == "failed"


def test_coroutines_and_loops_over_terms_have_spans_too(session, spans):
    async def lead() -> None:
        async with session.leadership("c"):
            pass

    asyncio.run(lead())
    for term in session.terms("c", cool_off_s=0.0):
        if term.number == 3:
            term.finish()
    assert [one.attributes["leaderq.term"] for one in spans("term c")] == [1, 2, 3]
    assert [one.attributes["leaderq.reason"] for one in spans("term c")][-1] == "finished"
