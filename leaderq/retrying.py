"""How often and how soon what failed is tried again, and requests that are asked until answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from leaderq import clock
from leaderq.errors import ConfigurationError, ConnectionLost, SessionExpired
from leaderq.threads import BackoffPolicy, primitives
from leaderq.zookeeper import Session, SessionState

T = TypeVar("T")
PATIENCE_S = 30.0
"""How long an operator's request outlasts an outage."""
_LOOK_S = 0.5
_REST_S = 0.05


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a failed item is tried again.

    ``attempts``: after that many failures it goes to the dead letters (``<path>-dead``); ``None``:
    it never does. Before the second attempt ``backoff_s`` seconds pass, before each further one
    ``factor`` times as many, at most ``max_backoff_s``; each wait is cut by a random share of up to
    ``jitter`` (0 to 1), so that what failed together does not come back together.

    With a lock path the death of a consumer over an item counts as a failure. If the consumer held
    several items it is not known over which it died: an item that was held at two deaths is then
    tried alone, and deaths count as soon as one has told.
    """

    attempts: int | None = 10
    backoff_s: float = 0.1
    factor: float = 2.0
    max_backoff_s: float = 60.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        least_s = min(self.backoff_s, self.max_backoff_s)
        waits = f"backoff_s={self.backoff_s!r}, max_backoff_s={self.max_backoff_s!r}"
        ConfigurationError.unless(
            (
                self.attempts is None or self.attempts >= 1,
                f"attempts={self.attempts!r}: give 1 or more, or None for no limit",
            ),
            (least_s >= 0, f"{waits}: give 0 or more seconds"),
            (self.factor >= 1, f"factor={self.factor!r}: give 1 or more"),
            (0 <= self.jitter <= 1, f"jitter={self.jitter!r}: give a share from 0 to 1"),
        )

    def is_exhausted(self, failures: int) -> bool:
        """Whether an item that has failed so often goes to the dead letters."""
        return self.attempts is not None and failures >= self.attempts

    def wait_s(self, failures: int, chance: float | None = None) -> float:
        """Seconds until the next attempt, after that many failures; ``chance`` (0 to 1) stands for
        the dice.
        """
        first_s, most_s = min(self.backoff_s, self.max_backoff_s), self.max_backoff_s
        return BackoffPolicy(first_s, most_s, self.factor, self.jitter).delay_s(failures, chance)


def retry_until_connected(
    session: Session,
    ask: Callable[[], T],
    patience_s: float | None = None,
    *,
    check: Callable[[], object] = lambda: None,
) -> T:
    """The result of ``ask``, which is asked again while the servers are unreachable; it must do no
    harm when it is asked twice. ``check``: called before each try, and now and then; raises if
    nobody waits any more.

    :raises ConnectionLost: there was no answer in ``patience_s`` (:data:`PATIENCE_S`).
    """
    deadline = clock.now_s() + (PATIENCE_S if patience_s is None else patience_s)
    while True:
        check()
        try:
            return ask()
        except (ConnectionLost, SessionExpired):
            if clock.now_s() >= deadline:
                raise
            await_connection(session, min(deadline, clock.now_s() + _LOOK_S))


def await_connection(session: Session, deadline: float) -> None:
    """Return when there seems to be a connection, when the session is closed, or at the deadline;
    after a short wait at least.
    """
    woken = primitives.Event()

    def on_state(_state: SessionState) -> None:
        woken.set()

    session.add_listener(on_state)
    try:
        woken.wait(_REST_S)
        while (
            session.state in (SessionState.SUSPENDED, SessionState.LOST)
            and (left_s := deadline - clock.now_s()) > 0
        ):
            woken.clear()
            woken.wait(min(_LOOK_S, left_s))
    finally:
        session.remove_listener(on_state)
