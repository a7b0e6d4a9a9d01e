"""A handler that tests hold by the sleeve."""

from __future__ import annotations

import threading
from typing import Any

from leaderq.testing.waiting import patience

WAIT_S = 60.0 * patience()
"""Longer than any test: it ends a wait that should not be there."""


class Held:
    """Says that it has begun, waits until it may go on, notes what it applied, raises errors."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.applied: list[Any] = []

    def __call__(self, request: Any) -> Any:
        self.begun.set()
        assert self.go.wait(WAIT_S)
        if isinstance(request, BaseException):
            raise request
        self.applied.append(request)
        return request


class Told:
    def __init__(self) -> None:
        self.errors: list[tuple[Any, BaseException]] = []

    def __call__(self, request: Any, error: BaseException) -> None:
        self.errors.append((request, error))

    @property
    def kinds(self) -> list[tuple[Any, type[BaseException]]]:
        return [(request, type(error)) for request, error in self.errors]


def in_thread(call: Any, *arguments: Any) -> tuple[threading.Thread, list[Any]]:
    """``call`` on a thread of its own, and where its outcome, or what it raised, will be."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call(*arguments))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome
