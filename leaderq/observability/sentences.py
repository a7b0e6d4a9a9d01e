"""Each event as one sentence for a person, and how serious it is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from leaderq import events
from leaderq.events import Event

_Sentence = tuple[int, Callable[[Any], str]]

_SENTENCES: dict[type[Event], _Sentence] = {
    events.Standing: (logging.INFO, lambda e: "stands for election"),
    events.TermBegan: (
        logging.INFO,
        lambda e: f"won term {e.term}" + (" (the term before ended uncleanly)" if e.unclean else ""),
    ),
    events.StageBegan: (logging.INFO, lambda e: f"term {e.term}: {e.stage.value} begins"),
    events.WorkPaused: (logging.WARNING, lambda e: f"term {e.term}: work pauses: {e.why}"),
    events.WorkResumed: (logging.INFO, lambda e: f"term {e.term}: work goes on"),
    events.TermEnding: (logging.INFO, lambda e: f"term {e.term} is ending: {e.reason.sentence}"),
    events.TermEnded: (logging.INFO, lambda e: f"term {e.term} ended{'' if e.clean else ' uncleanly'}: {e.reason.sentence}"),
    events.CareerError: (logging.ERROR, lambda e: f"term {e.term}: {e.stage} raised {type(e.error).__name__}: {e.error}"),
    events.CoolingOff: (
        logging.WARNING,
        lambda e: f"stands again in {e.seconds:.1f} s ({e.failures} failed in a row): {e.why}",
    ),
    events.BudgetMissed: (
        logging.ERROR,
        lambda e: f"term {e.term}: {e.stage} takes longer than its budget of {e.budget_s:g} s",
    ),
    events.Withdrawn: (logging.INFO, lambda e: "no longer stands for election"),
    events.SessionChanged: (logging.INFO, lambda e: f"ZooKeeper session: {e.state}"),
    events.GuardianLost: (
        logging.WARNING,
        lambda e: (
            f"the guardian (process {e.pid}) is gone; after a crash leadership is free only when the session times out"
        ),
    ),
    events.DrainStalled: (
        logging.WARNING,
        lambda e: f"{e.partition} stood still at {e.position} of {e.end}; the consumer was rebuilt ({e.rebuilt} so far)",
    ),
    events.DrainProgress: (
        logging.DEBUG,  # every few seconds
        lambda e: f"term {e.term}: {e.lag} to go; {e.rate_per_s or 0:.1f}/s handled, {e.arriving_per_s or 0:.1f}/s arriving",
    ),
    # The drain warns of both itself, with the error.
    events.RecordSkipped: (logging.DEBUG, lambda e: f"skipped {e.partition}@{e.offset} after {e.attempts} attempts"),
    events.RecordBuried: (
        logging.DEBUG,
        lambda e: f"set {e.partition}@{e.offset} aside on {e.topic} after {e.attempts} attempts",
    ),
}


def sentence(event: Event) -> tuple[int, str]:
    """Level (of :mod:`logging`) and sentence of ``event``; one of an unknown class is told by its name."""
    for kind in type(event).__mro__:
        if kind in _SENTENCES:
            level, say = _SENTENCES[kind]
            break
    else:
        level, say = logging.INFO, lambda e: e.name.replace("_", " ")
    return level, f"{event.career}/{event.candidate} {say(event)}"
