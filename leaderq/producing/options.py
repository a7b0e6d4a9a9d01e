"""The settings of a buffered producer, checked together."""

from __future__ import annotations

from typing import Any

from leaderq.errors import ConfigurationError
from leaderq.producing.entry import KeyOf
from leaderq.producing.patience import Retry
from leaderq.producing.states import Marks


def check(
    *,
    marks: Marks,
    workers: int,
    process: Any,
    key: KeyOf | None,
    batch_items: int,
    batch_bytes: int,
    max_waiters: int,
    times: dict[str, float | None],
    retry: Retry,
    process_retry: Retry,
) -> None:
    """Return if all of it can be used.

    :raises ConfigurationError: with every problem found.
    """
    problems = [
        f"{name}={value!r}: give 1 or more"
        for name, value in (
            ("max_items", marks.max_items),
            ("max_bytes", marks.max_bytes),
            ("workers", workers),
            ("batch_items", batch_items),
            ("batch_bytes", batch_bytes),
            ("max_waiters", max_waiters),
        )
        if value < 1
    ]
    problems += [
        f"{name}={value!r}: give 0 or more seconds" for name, value in times.items() if value is not None and value < 0
    ]
    if not 0 <= marks.low < marks.high <= 1:
        problems.append(f"low={marks.low!r}, high={marks.high!r}: give shares of the memory with 0 <= low < high <= 1")
    if workers > 1 and process is None:
        problems.append(f"workers={workers!r}: there is no process step for them; give process, or leave workers out")
    if workers > 1 and key is None:
        problems.append(
            f"workers={workers!r} without a key: which requests must stay in order? Give key, a callable of the request"
        )
    if process is not None and not callable(process):
        problems.append(f"process={process!r} cannot be called")
    problems += retry.problems()
    problems += [problem.replace("retry.", "process_retry.", 1) for problem in process_retry.problems()]
    if problems:
        raise ConfigurationError(*problems)
