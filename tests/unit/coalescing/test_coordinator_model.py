"""The coordinator against a model, for any events: one runs, at most one waits, and every request
either ran, was covered by a run that began after it came, was refused, or gave up. One thread, and
a clock that the test turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from leaderq.coalescing import (
    Debounce,
    EnqueueOutcome,
    QueueCoordinator,
    Token,
    TokenStage,
    TrafficState,
)
from leaderq.threads import Service

KEYS = st.sampled_from("ab")
STATES = {
    (True, True): TrafficState.INIT,
    (True, False): TrafficState.OPEN,
    (False, True): TrafficState.PROCESS,
    (False, False): TrafficState.BLOCK,
}


@dataclass
class KeyModel:
    head: Token[str] | None = None
    began_s: float = 0.0
    waiter: Token[str] | None = None
    first_s: float | None = None
    due_s: float = 0.0
    owed: list[Token[str]] = field(default_factory=list)
    """Declined, and whoever was to cover them gave up: the next request does."""


class AnyEvents(RuleBasedStateMachine):
    tokens: Bundle[Token[str]] = Bundle("tokens")

    @initialize(
        waiters=st.integers(0, 1),
        safe_timeout_s=st.sampled_from([None, 5.0]),
        debounce=st.sampled_from([None, Debounce(2.0, 6.0)]),
    )
    def begin(self, waiters, safe_timeout_s, debounce) -> None:
        self.now = 0.0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("leaderq.base.clock.now_s", lambda: self.now)
        self.waiters = waiters
        self.safe_timeout_s = safe_timeout_s
        self.debounce = debounce if waiters else None
        self.model = {key: KeyModel() for key in "ab"}
        self.called: list[Token[str]] = []
        self.evicted: list[Token[str]] = []
        self.expected_called: list[Token[str]] = []
        self.expected_evicted: list[Token[str]] = []
        self.all: list[Token[str]] = []
        self.came: dict[Token[str], int] = {}
        self.began: dict[Token[str], int] = {}
        self.covered_by: dict[Token[str], Token[str]] = {}
        self.steps = 0
        self.coordinator: QueueCoordinator[str] = QueueCoordinator(
            waiters=waiters,
            safe_timeout_s=safe_timeout_s,
            on_evicted=self.evicted.append,
            debounce=self.debounce,
        )
        # the test looks in place of the timer
        self.coordinator._keys._timer = Service("never started", print)

    def takes_what_is_owed(self, key: KeyModel, token: Token[str]) -> None:
        self.covered_by.update(dict.fromkeys(key.owed, token))
        key.owed = []

    def runs(self, key: KeyModel, token: Token[str], *, waited: bool) -> None:
        self.takes_what_is_owed(key, token)
        key.head, key.began_s, key.first_s = token, self.now, None
        self.began[token] = self.steps
        if waited:
            self.expected_called.append(token)

    def settle(self, key: KeyModel) -> None:
        if (
            key.head is not None
            and self.safe_timeout_s is not None
            and self.now >= key.began_s + self.safe_timeout_s
        ):
            self.expected_evicted.append(key.head)
            key.head = None
        is_due = key.first_s is None or self.now >= key.due_s
        if key.head is None and key.waiter is not None and is_due:
            waiter, key.waiter = key.waiter, None
            self.runs(key, waiter, waited=True)

    def may_forget(self, key: KeyModel) -> None:
        """A debounce window ends with the last request, unless a run is still owed."""
        if key.head is None and key.waiter is None and not key.owed:
            key.first_s = None

    @rule(target=tokens, name=KEYS)
    def somebody_offers(self, name: str) -> Token[str]:
        self.steps += 1
        key = self.model[name]
        self.settle(key)
        token = self.coordinator.offer(name, self.called.append)
        self.all.append(token)
        self.came[token] = self.steps
        if self.debounce:
            key.first_s = self.now if key.first_s is None else key.first_s
            key.due_s = min(self.now + 2.0, key.first_s + 6.0)
        if key.head is None and key.waiter is None and not self.debounce:
            assert token and token.outcome is EnqueueOutcome.ACCEPT
            self.runs(key, token, waited=False)
        elif self.waiters and key.waiter is None:
            assert not token and token.outcome is EnqueueOutcome.BLOCK
            key.waiter = token
            self.takes_what_is_owed(key, token)
        else:
            assert token.outcome is EnqueueOutcome.DECLINE
            if key.waiter is not None:
                self.covered_by[token] = key.waiter
        return token

    @rule(name=KEYS)
    def whoever_runs_is_done(self, name: str) -> None:
        self.steps += 1
        key = self.model[name]
        if key.head is not None:
            assert self.coordinator.dequeue(key.head)
            key.head = None
            self.settle(key)

    @rule(token=tokens)
    def anybody_dequeues(self, token: Token[str]) -> None:
        self.steps += 1
        key = self.model[token.key]
        assert self.coordinator.dequeue(token) is (token is key.head)
        if token is key.head:
            key.head = None
        if token is key.waiter:
            key.waiter = None
            assert token.stage is TokenStage.WITHDRAWN
            key.owed += [one for one, by in self.covered_by.items() if by is token]
        self.settle(key)
        self.may_forget(key)

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 7.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.steps += 1
        self.now += seconds

    @rule()
    def the_timer_looks(self) -> None:
        self.steps += 1
        self.look()
        for key in self.model.values():
            if key.waiter is not None or key.owed:
                self.settle(key)

    def look(self) -> None:
        left_s = self.coordinator._keys.tend_due()
        assert left_s is None or left_s > 0
        self.coordinator._keys._timer = Service("never started", print)

    @invariant()
    def each_key_stands_as_it_ought_to(self) -> None:
        for name, key in getattr(self, "model", {}).items():
            self.may_forget(key)
            current = [token for token in self.all if token.key == name and token]
            assert [key.head] == current or (key.head not in self.all and not current)
            assert key.waiter is None or key.waiter.stage is TokenStage.WAITING
            assert self.coordinator.state(name) is STATES[key.head is None, key.waiter is None]

    @invariant()
    def whoever_is_concerned_was_called_once_and_nobody_else(self) -> None:
        for told in ("called", "evicted"):
            found, expected = (getattr(self, name, []) for name in (told, f"expected_{told}"))
            assert sorted(map(id, found)) == sorted(map(id, expected))

    @invariant()
    def all_is_counted(self) -> None:
        if hasattr(self, "model"):
            counters = self.coordinator.stats()
            assert counters.running == sum(key.head is not None for key in self.model.values())
            assert counters.waiting == sum(key.waiter is not None for key in self.model.values())
            assert counters.owed == sum(len(key.owed) for key in self.model.values())
            assert counters.runs == len(self.began) and counters.evicted == len(self.evicted)

    def teardown(self) -> None:
        if not hasattr(self, "model"):
            return
        self.now += 100.0 if self.debounce else 0.0
        for name in [*"ab"] * 6:
            self.the_timer_looks()
            self.whoever_runs_is_done(name)
        assert self.coordinator.stats().running == self.coordinator.stats().waiting == 0
        for declined, covering in self.covered_by.items():
            gave_up = covering.stage is TokenStage.WITHDRAWN
            assert gave_up or self.began[covering] >= self.came[declined], (declined, covering)
        assert self.coordinator.drain(0) == ()
        self.patch.undo()


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(max_examples=150, stateful_step_count=40)
