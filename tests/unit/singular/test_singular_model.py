"""A random life of a queue beside a model of it: order, at most once, and an account of every
request.

The handler takes one step when the test lets it, so what the writer has in hand is known at any
moment and nothing is left to luck.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from held import WAIT_S
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leaderq.errors import DeadlineExceeded, QueueClosed, QueueFull, RequestCancelled
from leaderq.singular import RequestFuture, SingularUpdateQueue, Stats
from leaderq.testing import eventually


class Broken(Exception):
    """What the handler raises for requests that ask for it."""


class Life(RuleBasedStateMachine):
    """The queue, and lists of what should be in it."""

    max_batch: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.at_s = 1000.0
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("leaderq.base.clock.now_s", lambda: self.at_s)
        self.step = threading.Semaphore(0)
        self.begun: list[int] = []
        self.numbers = 0
        self.broken: set[int] = set()
        self.told: dict[int, type[BaseException]] = {}
        # The model
        self.line, self.in_hand, self.applied = list[int](), list[int](), list[int]()
        self.failed, self.expired, self.cancelled = set[int](), set[int](), set[int]()
        self.refused = 0
        self.expiry: dict[int, float] = {}
        self.futures: dict[int, RequestFuture[int]] = {}
        self.is_closed = False

    @initialize(capacity=st.sampled_from([4, None]))
    def begin(self, capacity: int | None) -> None:
        self.capacity = capacity
        options: Any = {"capacity": capacity, "timeout_s": 0, "max_batch": self.max_batch}
        handler = self.handle if self.max_batch is None else self.handle_batch
        self.queue: SingularUpdateQueue[int, int] = SingularUpdateQueue(
            handler, on_error=self.listen, **options
        )

    def handle(self, number: int) -> int:
        self.begun.append(number)
        assert self.step.acquire(timeout=WAIT_S)
        if number in self.broken:
            raise Broken(number)
        return number * 2

    def handle_batch(self, numbers: list[int]) -> list[Any]:
        self.begun.extend(numbers)
        assert self.step.acquire(timeout=WAIT_S)
        return [Broken(number) if number in self.broken else number * 2 for number in numbers]

    def listen(self, number: int, error: BaseException) -> None:
        assert number not in self.told
        self.told[number] = type(error)

    @rule(
        with_future=st.booleans(),
        is_broken=st.booleans(),
        deadline_s=st.sampled_from([None, None, 1.0, 5.0]),
    )
    def put(self, with_future: bool, is_broken: bool, deadline_s: float | None) -> None:
        number = self.numbers
        self.numbers += 1
        if is_broken:
            self.broken.add(number)
        try:
            if with_future:
                self.futures[number] = self.queue.submit(number, deadline_s=deadline_s)
            else:
                self.queue.post(number, deadline_s)
        except (QueueFull, QueueClosed) as error:
            self.refused += 1
            assert isinstance(error, QueueClosed) == self.is_closed
            assert self.is_closed or len(self.line) == self.capacity
            return
        assert not self.is_closed
        assert self.capacity is None or len(self.line) < self.capacity
        self.line.append(number)
        if deadline_s is not None:
            self.expiry[number] = self.at_s + deadline_s
        self.writer_goes_on()

    @precondition(lambda self: self.in_hand)
    @rule()
    def finish(self) -> None:
        for number in self.in_hand:
            if number in self.broken:
                self.failed.add(number)
            else:
                self.applied.append(number)
        self.in_hand = []
        self.step.release()
        self.writer_goes_on()

    def writer_goes_on(self) -> None:
        """The model's writer takes what it may, and the real one has to come to the same."""
        while not self.in_hand and self.line:
            for _ in range(min(len(self.line), self.max_batch or 1)):
                number = self.line.pop(0)
                if number in self.cancelled:
                    continue
                if self.at_s >= self.expiry.get(number, self.at_s + 1):
                    self.expired.add(number)
                else:
                    self.in_hand.append(number)
        eventually(self.writer_is_there, interval_s=0.0002)
        if self.is_closed and not self.in_hand:
            # it has nothing left but to end, and for an instant counts that as work
            self.queue.close(timeout_s=WAIT_S)
            assert self.writer_is_there()

    def writer_is_there(self) -> bool:
        """Whether the real writer has come as far as that of the model, and has told of all that it
        left behind: it counts a request as ended before it tells its listener.
        """
        taken = len(self.applied) + len(self.failed) + len(self.in_hand)
        told = set(self.told)
        return (
            len(self.begun) == taken
            and self.failed | self.expired <= told
            and self.is_accounted_for()
        )

    def is_accounted_for(self) -> bool:
        return self.queue.stats() == Stats(
            depth=len(self.line),
            in_hand=len(self.in_hand),
            waiting=0,
            applied=len(self.applied),
            failed=len(self.failed),
            expired=len(self.expired),
            cancelled=len(self.cancelled - set(self.line)),
            refused=self.refused,
            accepted=self.numbers - self.refused,
        )

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.futures:
            return
        number = data.draw(st.sampled_from(sorted(self.futures)))
        could = number in self.line or number in self.cancelled
        assert self.futures[number].cancel() == (could and number not in self.expired)
        if could and number not in self.expired:
            self.cancelled.add(number)

    @rule(by_s=st.sampled_from([0.5, 2.0]))
    def wait(self, by_s: float) -> None:
        self.at_s += by_s

    @rule()
    def close(self) -> None:
        is_done = self.queue.close(timeout_s=WAIT_S if not self.in_hand else 0)
        assert is_done == (not self.in_hand)
        self.is_closed = True

    @rule()
    def give_up(self) -> None:
        swept = set(self.line)
        is_done = self.queue.close(drain=False, timeout_s=WAIT_S if not self.in_hand else 0)
        assert is_done == (not self.in_hand)
        self.is_closed = True
        for number in swept - self.cancelled:
            assert self.told[number] is RequestCancelled
        self.cancelled |= swept
        self.line = []

    @invariant()
    def each_is_begun_once_and_in_order(self) -> None:
        assert self.begun == sorted(set(self.begun))
        ended = set(self.applied) | self.failed
        assert set(self.begun) == ended | set(self.in_hand)

    @invariant()
    def the_account_is_that_of_the_model(self) -> None:
        if hasattr(self, "queue"):
            assert self.is_accounted_for()

    @invariant()
    def futures_and_listener_know(self) -> None:
        ends = {Broken: self.failed, DeadlineExceeded: self.expired}
        for number, kind in self.told.items():
            assert number in {**ends, RequestCancelled: self.cancelled}[kind]
        assert self.failed | self.expired <= set(self.told)
        for number, one in self.futures.items():
            error = [kind for kind, those in ends.items() if number in those]
            if number in self.cancelled:
                assert one.cancelled()
            elif number in {*self.line, *self.in_hand}:
                assert (one.running(), one.done()) == (number in self.in_hand, False)
            elif error:
                assert type(one.exception(WAIT_S)) is error[0]
            else:
                assert one.result(WAIT_S) == number * 2

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            self.step.release(self.numbers + 1)
            assert self.queue.close(timeout_s=WAIT_S)
            stats = self.queue.stats()
            assert stats.accepted == stats.applied + stats.failed + stats.expired + stats.cancelled
        self.patch.undo()


class LifeInBatches(Life):
    max_batch = 3


TestLife, TestLifeInBatches = Life.TestCase, LifeInBatches.TestCase
TestLife.settings = TestLifeInBatches.settings = settings(max_examples=60, stateful_step_count=30)
