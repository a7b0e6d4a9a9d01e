"""Whatever is done to a producer, and whatever its sink and its memory do: the account is exact,
and the order is kept.

The model is plain lists; Hypothesis drives producer, sink, disk and restarts. The ordinary run
tries a few lives of a producer; ``LEADERQ_TEST_FAULTS=1000`` (or what ``make faults`` gives) tries
so many.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest
from faulty_disk import QuickDisk
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scripted_sink import AT_ONCE, ScriptedSink, is_away, is_broken, refuses, takes

from leaderq.errors import BufferFull, JournalFailed, JournalFull, ProducerClosed, RequestGivenUp
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
        self.disk = QuickDisk()
        self.sent: list[int] = []
        self.lost: list[int] = []
        self.futures: dict[int, Future[None]] = {}
        self.number = 0
        self.may_repeat = False
        self.restarts: list[int] = []
        self.journal: Journal | None = None
        self.producer: BufferedProducer | None = None

    @initialize(
        has_journal=st.booleans(),
        is_write_ahead=st.booleans(),
        is_capped=st.booleans(),
        disk_bytes=st.sampled_from([None, 150 << 10, 160 << 10]),
        when_full=st.sampled_from(list(WhenFull)),
        has_key=st.booleans(),
        max_items=st.integers(1, 12),
        batch_items=st.integers(1, 5),
    )
    def settle_on(self, has_journal, is_write_ahead, is_capped, disk_bytes, has_key, **options):
        self.has_journal, self.is_capped, self.options = has_journal, is_capped, options
        self.disk.room = disk_bytes
        if has_journal and options["when_full"] is WhenFull.DROP_OLDEST:
            options["when_full"] = WhenFull.RAISE
        self.policy = Every(5) if is_write_ahead and has_journal else None
        if has_key:
            options["key"] = lambda request: request[0]
        self.open()

    def open(self) -> None:
        if self.has_journal:
            cap = {"max_bytes": 16 << 10, "segment_bytes": 4 << 10} if self.is_capped else {}
            self.journal = Journal(self.folder, sync=self.policy or NO_SYNC, disk=self.disk, **cap)
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
        assert self.producer is not None
        for _ in range(count):
            request = (key, self.number, b"x" * padding)
            try:
                if waits:
                    self.futures[self.number] = self.producer.submit(request)
                else:
                    self.producer.send(request)
            except BufferFull:
                self.futures.pop(self.number, None)
            else:
                self.sent.append(self.number)
                self.accepted += 1
            self.number += 1

    @rule(line=st.sampled_from([takes, is_away, is_broken, refuses(0), refuses(1, 2)]))
    def change_the_sink(self, line):
        self.sink.now(line)

    @precondition(lambda self: self.has_journal)
    @rule(is_full=st.booleans())
    def fill_the_disk(self, is_full):
        self.disk.is_full = is_full

    @rule()
    def flush(self):
        assert self.producer is not None
        self.producer.flush(0.05)

    @precondition(lambda self: self.has_journal)
    @rule()
    def restart(self):
        self.shut(0.01)
        self.restarts.append(len(self.sink.confirmed))
        # what was confirmed could not be noted
        self.may_repeat = self.may_repeat or self.disk.is_full or self.disk.room is not None
        self.disk.is_full = False
        left = 0 if self.journal is None else self.journal.depth
        self.open()
        assert self.producer is not None
        assert self.producer.snapshot().balance.recovered >= left

    def shut(self, timeout_s: float) -> None:
        if self.producer is not None:
            self.producer.close(timeout_s)
            assert self.producer.snapshot().balance.is_exact
        if self.journal is not None:
            # of a disk that is full; it is closed all the same
            with suppress(JournalFull, JournalFailed):
                self.journal.close()

    @invariant()
    def the_account_is_exact(self):
        if self.producer is not None:
            snapshot = self.producer.snapshot()
            assert snapshot.balance.is_exact, snapshot
            assert snapshot.balance.accepted == self.accepted, snapshot
            assert snapshot.balance.pending == snapshot.memory_items + snapshot.journal_only, (
                snapshot
            )
            assert snapshot.memory_items <= self.options["max_items"]

    @invariant()
    def the_order_within_a_key_is_kept(self):
        confirmed = list(self.sink.confirmed)
        # What comes again because its acknowledgement was lost comes in order again, also what was
        # refused before.
        begins = self.restarts if self.may_repeat else []
        for begin, end in zip([0, *begins], [*begins, len(confirmed)], strict=True):
            for key in range(KEYS):
                numbers = [number for where, number, _ in confirmed[begin:end] if where == key]
                assert numbers == sorted(numbers), f"repeats={self.may_repeat} {numbers}"

    def teardown(self) -> None:
        try:
            if self.producer is not None:
                self.sink.now(takes)
                self.disk.is_full = False  # but not larger
                settlement = self.producer.flush(60)
                assert settlement.pending == 0, self.producer.snapshot()
                assert settlement.confirmed == len(self.sink.confirmed) - self.confirmed
                assert bool(settlement) == (not self.producer.snapshot().balance.lost)
                self.shut(30)
                self.the_order_within_a_key_is_kept()
                confirmed = [number for _, number, _ in self.sink.confirmed]
                # Listeners and futures are told after the account is settled, by whichever thread
                # settled it.
                eventually(
                    lambda: set(confirmed + self.lost) == set(self.sent),
                    message="none is forgotten",
                )
                # and each comes once
                assert self.may_repeat or sorted(confirmed + self.lost) == self.sent
                for number, future in self.futures.items():
                    error = future.exception(60)
                    # else it may have been confirmed before
                    if number in self.lost and not self.may_repeat:
                        assert isinstance(error, RequestGivenUp | ProducerClosed)
        finally:
            shutil.rmtree(self.folder)


Account.TestCase.settings = settings(
    max_examples=LIVES,
    stateful_step_count=15,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TestAccount = pytest.mark.timeout(180 + 5 * LIVES)(Account.TestCase)
