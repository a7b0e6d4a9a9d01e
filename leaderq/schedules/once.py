"""The record of ``leaderq lead --once KEY``: work that is done once for a key, on all hosts
together.

``/leaderq/<career>/once`` holds a JSON list of runs, the oldest first, each with its key. If a run
has failed, or its end is not recorded, the next leader begins it again.
"""

from __future__ import annotations

import json
from dataclasses import replace

from leaderq.errors import CorruptRecord
from leaderq.schedules.record import TickOutcome, TickRun, brief, run_of

KEYS_KEPT = 400
Runs = tuple[TickRun, ...]


def begun(runs: Runs, key: str, now: int, *, term: int, candidate: str) -> tuple[Runs, TickRun]:
    """Return the runs with a new run of ``key``, and that run. If ``key`` is done, change nothing,
    and return the run that did it.
    """
    known = next((one for one in runs if one.key == key), None)
    if known is not None and known.outcome is TickOutcome.DONE:
        return runs, known
    attempt = 1 if known is None else known.attempt + 1
    run = TickRun(now, now, term, candidate, attempt, key=key)
    return (*(one for one in runs if one.key != key), run)[-KEYS_KEPT:], run


def concluded(runs: Runs, key: str, now: int, error: str | None) -> Runs:
    """Return the runs with the end of the run of ``key`` added; ``error``: why it failed, or
    ``None``.
    """
    outcome = TickOutcome.DONE if error is None else TickOutcome.FAILED
    return tuple(
        replace(one, ended=now, outcome=outcome, error=error) if one.key == key else one
        for one in runs
    )


def encode_runs(runs: Runs) -> bytes:
    """The bytes that :func:`decode_runs` reads."""
    return json.dumps([brief(one) for one in runs], separators=(",", ":")).encode()


def decode_runs(data: bytes | None, *, path: str) -> Runs:
    """The runs in ``data``; raises :class:`CorruptRecord`."""
    if not data:
        return ()
    remedy = "so it is not known what was done: correct or delete it"
    with CorruptRecord.unless("a list of runs", path, data, remedy):
        return tuple(run_of(one) for one in json.loads(data))
