"""Whatever is done to a producer, and whatever its sink and its memory do: the account is exact,
and the order is kept.

The model is plain lists; Hypothesis drives producer, sink and restarts. (Full disks:
``test_spilling.py``.) The ordinary run tries a few lives of a producer;
``LEADERQ_TEST_FAULTS=1000`` tries so many.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import Future
from pathlib import Path

import pytest
from faulty_disk import QuickDisk
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scripted_sink import AT_ONCE, ScriptedSink, is_away, is_broken, refuses, takes

from leaderq.errors import BufferFull, ProducerClosed, RequestGivenUp
from leaderq.producing import NO_SYNC, BufferedProducer, Every, Journal, Lost, WhenFull
from leaderq.testing import eventually

KEYS = 3
LIVES = max(20, int(os.environ.get("LEADERQ_TEST_FAULTS", "0") or 0))


class Account(RuleBasedStateMachine):
    """Requests are ``(key, number, padding)``, numbered in the order of sending."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.sink = ScriptedSink()
        self.sent: list[int] = []
        self.lost: list[int] = []
        self.futures: dict[int, Future[None]] = {}
        self.number = 0
        self.journal: Journal | None = None

    @initialize(
        has_journal=st.booleans(),
        is_write_ahead=st.booleans(),
        is_capped=st.booleans(),
        when_full=st.sampled_from(list(WhenFull)),
        has_key=st.booleans(),
        max_items=st.integers(1, 12),
        batch_items=st.integers(1, 5),
    )
    def settle_on(self, has_journal, is_write_ahead, is_capped, has_key, **options):
        self.has_journal, self.options = has_journal, options
        self.cap = {"max_bytes": 16 << 10, "segment_bytes": 4 << 10} if is_capped else {}
        if has_journal and options["when_full"] is WhenFull.DROP_OLDEST:
            options["when_full"] = WhenFull.RAISE
        self.policy = Every(5) if is_write_ahead and has_journal else None
        if has_key:
            options["key"] = lambda request: request[0]
        self.open()

    def open(self) -> None:
        if self.has_journal:
            self.journal = Journal(
                self.folder, sync=self.policy or NO_SYNC, disk=QuickDisk(), **self.cap
            )
        self.accepted, self.confirmed = 0, len(self.sink.confirmed)
        self.producer = BufferedProducer(
            self.sink,
            journal=self.journal,
            persistence=self.policy,
            linger_s=0.0,
            retry=AT_ONCE,
            sink_timeout_s=0.01,
            dropped_listener=self.heard,
            **self.options,
        )

    def heard(self, lost: Lost) -> None:
        assert lost.request is not None
        self.lost.append(lost.request[1])

    @rule(
        count=st.integers(1, 30),
        key=st.integers(0, KEYS - 1),
        padding=st.sampled_from([0, 0, 200, 900]),
        waits=st.booleans(),
    )
    def send(self, count, key, padding, waits):
        first, self.number = self.number, self.number + count
        for number in range(first, self.number):
            request = (key, number, b"x" * padding)
            try:
                if waits:
                    self.futures[number] = self.producer.submit(request)
                else:
                    self.producer.send(request)
            except BufferFull:
                continue
            self.sent.append(number)
            self.accepted += 1

    @rule(line=st.sampled_from([takes, is_away, is_broken, refuses(0), refuses(1, 2)]))
    def change_the_sink(self, line):
        self.sink.now(line)

    @rule()
    def flush(self):
        self.producer.flush(0.05)

    @precondition(lambda self: self.has_journal)
    @rule()
    def restart(self):
        self.shut(0.01)
        left = 0 if self.journal is None else self.journal.depth
        self.open()
        assert self.producer.snapshot().balance.recovered >= left

    def shut(self, timeout_s: float) -> None:
        self.producer.close(timeout_s)
        assert self.producer.snapshot().balance.is_exact
        if self.journal is not None:
            self.journal.close()

    @invariant()
    def the_account_is_exact(self):
        if hasattr(self, "producer"):
            snapshot = self.producer.snapshot()
            assert snapshot.balance.is_exact, snapshot
            assert snapshot.balance.accepted == self.accepted, snapshot
            here = snapshot.memory_items + snapshot.journal_only
            assert snapshot.balance.pending == here, snapshot
            assert snapshot.memory_items <= self.options["max_items"]

    @invariant()
    def the_order_within_a_key_is_kept(self):
        for key in range(KEYS):
            numbers = [number for where, number, _ in [*self.sink.confirmed] if where == key]
            assert numbers == sorted(numbers)

    def teardown(self) -> None:
        try:
            if hasattr(self, "producer"):
                self.all_comes_to_its_end()
        finally:
            shutil.rmtree(self.folder)

    def all_comes_to_its_end(self) -> None:
        self.sink.now(takes)
        settlement = self.producer.flush(60)
        assert settlement.pending == 0, self.producer.snapshot()
        assert settlement.confirmed == len(self.sink.confirmed) - self.confirmed
        assert bool(settlement) == (not self.producer.snapshot().balance.lost)
        self.shut(30)
        self.the_order_within_a_key_is_kept()
        confirmed = [number for _, number, _ in self.sink.confirmed]
        # Listeners and futures are told after the account is settled, by whoever settled it.
        eventually(lambda: sorted(confirmed + self.lost) == self.sent, message="each comes once")
        for number, future in self.futures.items():
            error = future.exception(60)
            assert number not in self.lost or isinstance(error, RequestGivenUp | ProducerClosed)


Account.TestCase.settings = settings(
    max_examples=LIVES,
    stateful_step_count=15,
    print_blob=True,
    suppress_health_check=[*HealthCheck],
)
TestAccount = pytest.mark.timeout(180 + 5 * LIVES)(Account.TestCase)
