"""The buffer without its threads: whatever is put in, taken, split, settled, given up or struck,
the order is kept, the account is exact, and all that is kept beside the requests is what they say.

The model is plain lists. The journal is one of paper: a list, stored when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leaderq.base import clock
from leaderq.errors import BufferFull, JournalSlow, RequestGivenUp
from leaderq.producing import BufferState, LossReason, Lost, Retry, WhenFull
from leaderq.producing.buffer import Admission, RequestBuffer
from leaderq.producing.options import FullPolicy, ProducerOptions
from leaderq.producing.request import BufferedRequest, measured
from leaderq.producing.spill import Piece


class PaperSpill:
    """A journal for the buffer: a list that takes ``room`` at most, stored to ``stored_id``."""

    recovered = corrupt = 0
    last_error = unforced = trouble = None
    when_room: Callable[[], object] = print

    def __init__(self, *, is_write_ahead: bool) -> None:
        self.journal, self.is_write_ahead = self, is_write_ahead
        self.records: list[Any] = []
        self.done: set[int] = set()
        self.room, self.stored_id = 1000, 0
        self.is_entered = bool

    @property
    def next_id(self) -> int:
        return len(self.records) + 1

    def depth_behind(self, record_id: int) -> tuple[int, int]:
        behind = set(range(record_id + 1, self.next_id)) - self.done
        stored = {one for one in behind if one <= self.stored_id}
        return len(stored), len(behind - stored)

    def append(self, one: BufferedRequest, _: object) -> int | None:
        if len(self.records) >= self.room:
            return None
        self.records.append(one.request)
        return len(self.records)

    def serialized(self, one: BufferedRequest) -> bytes:
        return b"as bytes"

    @property
    def has_room(self) -> bool:
        return len(self.records) < self.room

    def ack(self, ids: list[int]) -> None:
        assert self.done.isdisjoint(ids)
        self.done.update(ids)

    def read(self, after_id: int, last_id: int, items: int, size: int) -> Piece:
        found, up_to = list[BufferedRequest](), after_id
        for number in range(after_id + 1, last_id + 1):
            if number not in self.done:
                request = self.records[number - 1]
                size -= measured(request)
                if len(found) == items or (found and size < 0):
                    break
                found.append(one := BufferedRequest(request, measured(request), 0.0))
                one.journal_id = number
            up_to = number
        return Piece(found, [], up_to)


def buffer_of(spill: PaperSpill | None = None, **given: Any) -> RequestBuffer:
    options: dict[str, Any] = dict.fromkeys(("key", "ttl_s", "dropped_listener"))
    options |= {"max_items": 10_000, "batch_items": 1000, "when_full": WhenFull.RAISE}
    options |= dict.fromkeys(("max_bytes", "batch_bytes"), 1 << 20)
    options |= dict.fromkeys(("sink_timeout_s", "close_timeout_s"), 1.0)
    options |= {"linger_s": 0.0, "retry": Retry(), "name": "producer", **given}
    return RequestBuffer(ProducerOptions(**options), spill)


def send(buffer, request, waiter=None, **given):
    """As a producer does: without a ``waiter``, nothing need be known of the request."""
    size = measured(request)
    if waiter is None and buffer.take_at_once(request, size):
        return True
    one = BufferedRequest(request, size, clock.now_s())
    one.waiter = waiter
    if waiter is not None and buffer.take_at_once(request, size, one):
        return True
    policy: FullPolicy = given.get("when_full", WhenFull.RAISE)
    admission = Admission(buffer, one, policy, None, None, lambda: None)
    while (wait_s := admission.attempt()) is not None:
        clock.now_s = partial(float.__add__, clock.now_s(), wait_s)
    return admission.is_placed


def requests_of(batch: list[BufferedRequest]) -> list[Any]:
    return [request for one in batch for request in (one.run or [one.request])]


def counts(batch: list[BufferedRequest]) -> list[int]:
    return [one.count for one in batch]


def test_a_run_that_was_taken_apart_is_settled_with_all_its_parts():
    buffer = buffer_of(batch_items=4)
    for number in range(12):
        send(buffer, number)
    run, *_ = buffer.take_batch(0.0)
    run.attempts = 2
    parts = buffer.parted([run])
    assert parts == buffer.parted([run]) == buffer.parted(parts)
    assert [(one.request, one.seq, one.attempts) for one in parts] == [
        (number, number + 1, 2) for number in range(4)
    ]
    buffer.settle([run])
    assert (buffer.items, buffer.ready_items, [*buffer.unsettled]) == (8, 8, [5, 9])


def test_what_a_run_got_before_its_caller_was_struck_is_here_and_is_counted_and_measured():
    buffer = buffer_of(batch_items=4)
    for _ in range(6):
        send(buffer, b"xx")
    last = [*buffer.unsettled.values()][-1]
    assert last.run is not None
    last.run.append(b"yyy")  # by the one statement that matters
    buffer._is_dirty = True
    assert buffer.look(lambda it: (it.pushed, it.items, it.bytes)) == (7, 7, 15)
    assert (last.size, buffer.ready_items, buffer.ready_bytes) == (7, 7, 15)
    assert counts(buffer.take_batch(0.0)) == [4]
    buffer.begin_again()
    assert counts(buffer.take_batch(0.0)) + counts(buffer.take_batch(0.0)) == [4, 3]


def test_what_a_signal_handler_sends_in_the_middle_of_a_call_is_measured_too(monkeypatch):
    buffer = buffer_of(PaperSpill(is_write_ahead=False), max_items=4, batch_items=1)
    send(buffer, b"")
    buffer.settle(buffer.take_batch(0.0))  # the sink is moving: near the mark, time is asked
    for _ in range(2):
        send(buffer, b"x")
    inner, now_s = [b"yyy"], clock.now_s()

    def interrupted() -> float:
        if inner:
            send(buffer, inner.pop())
        return now_s

    monkeypatch.setattr(clock, "now_s", interrupted)
    send(buffer, b"zz")
    assert (buffer.items, buffer.bytes) == (4, 1 + 1 + 3 + 2)


def test_a_disk_that_is_behind_for_a_second_is_named_to_who_finds_no_room(at):
    spill = PaperSpill(is_write_ahead=False)
    buffer = buffer_of(spill, max_items=1)
    send(buffer, 0)

    def append(*_: object) -> None:
        raise JournalSlow("the disk is behind")

    spill.append = append
    with pytest.raises(BufferFull, match="which takes nothing: the disk is behind"):
        send(buffer, 1)
    assert clock.now_s() == pytest.approx(at[0] + 1)


class Buffered(RuleBasedStateMachine):
    """Requests are ``(number, padding)``. Time passes only while one waits."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = clock.now_s
        clock.now_s = lambda: 1e6

    @initialize(
        journal=st.sampled_from(["none", "spills", "written ahead"]),
        max_items=st.sampled_from([200, 30, 3]),
        max_bytes=st.sampled_from([1 << 20, 1 << 20, 400]),
        batch_items=st.sampled_from([12, 5, 1]),
        batch_bytes=st.sampled_from([1 << 20, 400, 90]),  # two to a run; less than one may take
        when_full=st.sampled_from(list(WhenFull)),
    )
    def settle_on(self, journal, when_full, **options):
        self.lost: list[Lost] = []
        self.spill = (
            None if journal == "none" else PaperSpill(is_write_ahead=journal == "written ahead")
        )
        self.most, self.most_bytes = options["batch_items"], options["batch_bytes"]
        self.max_items, self.max_bytes = options["max_items"], options["max_bytes"]
        self.when_full = when_full
        if self.spill is not None and when_full is WhenFull.DROP_OLDEST:
            self.when_full = WhenFull.RAISE
        self.buffer = buffer_of(self.spill, dropped_listener=self.lost.append, **options)
        self.number = self.refused = 0
        self.pending: list[Any] = []  # and not in hand, in order
        self.hand: list[BufferedRequest] = []
        self.confirmed: list[Any] = []
        self.accepted: list[Any] = []
        self.futures: dict[int, Future[Any]] = {}

    @rule(
        awaited=st.lists(st.booleans(), min_size=1, max_size=14)
        | st.integers(1, 14).map(lambda count: [False] * count),
        padding=st.sampled_from([0, 10, 60]),
    )
    def send(self, awaited, padding):
        for waits in awaited:
            request, self.number = (self.number, b"x" * padding), self.number + 1
            waiter: Future[Any] | None = Future() if waits else None
            before = len(self.lost)
            try:
                is_placed = send(self.buffer, request, waiter, when_full=self.when_full)
            except BufferFull:
                self.refused += 1
                continue
            self.accepted.append(request)
            self.pending.append(request)
            for one in self.lost[before:]:
                is_oldest = one.reason is LossReason.OLDEST
                assert is_oldest or (one.reason is LossReason.NEWEST and not is_placed)
                assert one.request == (self.pending[0] if is_oldest else request)
                self.pending.remove(one.request)
            if waiter is not None:
                self.futures[request[0]] = waiter

    @rule()
    def take(self):
        batch = self.buffer.take_batch(0.0)
        found = requests_of(batch)
        assert found == self.pending[: len(found)]
        assert found or not self.buffer.ready_items
        assert len(found) <= self.most
        assert sum(map(measured, found)) <= self.most_bytes or len(found) == 1
        assert len({id(one) for one in [*batch, *self.hand]}) == len(batch) + len(self.hand)
        del self.pending[: len(found)]
        self.hand += batch

    @precondition(lambda self: self.hand)
    @rule(refused=st.booleans(), first=st.integers(0, 30), count=st.integers(1, 30))
    def hear_of_some(self, refused, first, count):
        """Of some in hand: the others stay there, each by itself."""
        self.hand = self.buffer.parted(self.hand)
        assert all(one.run is None for one in self.hand)
        some = self.hand[first : first + count]
        self.hand = [one for one in self.hand if one not in some]
        if refused:
            self.buffer.settle((), [(one, LossReason.REFUSED, OSError()) for one in some])
            assert [one.request for one in self.lost[len(self.lost) - len(some) :]] == [
                one.request for one in some
            ]
        else:
            self.buffer.settle(some)
            self.confirmed += [one.request for one in some]
        for one in some:
            future = self.futures.get(one.request[0], one.waiter)
            assert future is None or future.done()

    @precondition(lambda self: self.hand)
    @rule(is_twice=st.booleans())
    def hear_of_all(self, is_twice):
        self.confirmed += requests_of(self.hand)
        for _ in range(1 + is_twice):
            self.buffer.settle(self.hand)
        self.hand = []

    @rule()
    def strike_the_sender(self):
        self.buffer.begin_again()
        self.pending[:0], self.hand = requests_of(self.hand), []

    @rule()
    def strike_a_caller(self):
        """Whatever is kept beside the requests is spoilt."""
        buffer = self.buffer
        buffer.bytes = buffer.ready_items = buffer.ready_bytes = buffer._departed = -7
        buffer._is_dirty = True
        assert buffer.look(lambda it: it.items) >= 0

    @precondition(lambda self: self.spill is not None)
    @rule(room=st.sampled_from([0, 5, 1000]), is_stored=st.booleans())
    def change_the_journal(self, room, is_stored):
        assert self.spill is not None
        journal = self.spill.journal
        journal.room = room
        if is_stored:
            journal.stored_id = journal.next_id - 1

    @precondition(lambda self: self.spill is not None)
    @rule(times=st.integers(1, 2))
    def read_the_journal(self, times):
        """Twice, if its reader was struck."""
        order, _ = self.buffer._order()
        for _ in range(times if order is not None else 0):
            assert self.spill is not None and order is not None
            self.buffer.fill(self.spill.read(*order))

    @rule()
    def come_to_rest(self):
        for _ in range(1000):
            if self.spill is not None:
                self.change_the_journal(1000, True)
                self.read_the_journal(2)
            if not self._left():
                break
            self.take()
            self.hear_of_all(False)

    @rule(count=st.integers(0, 3))
    def a_flush_covers_what_was_sent_before(self, count):
        end = self.buffer.line_end()
        before = set(self.pending) | set(requests_of(self.hand))
        self.send([False] * count, 0)
        settlement = self.buffer.settlement(end)
        assert settlement.journaled + settlement.pending == len(before & self._left())
        assert self.buffer.look(lambda it: it._is_passed(end)) == (not before & self._left())

    def _left(self) -> set[Any]:
        return {*self.pending, *requests_of(self.hand)}

    @invariant()
    def the_account_is_exact(self):
        balance = self.buffer.look(lambda it: it.balance())
        assert balance.is_exact
        assert balance.accepted == len(self.accepted)
        assert balance.confirmed == len(self.confirmed)
        assert balance.pending == len(self._left())
        assert balance.lost == len(self.lost)
        assert balance.refused.get("no room", 0) == self.refused
        left = [self.futures[number] for number, _ in self._left() if number in self.futures]
        assert not any(future.done() for future in left)
        settlement = self.buffer.settlement()
        assert settlement.journaled + settlement.pending == len(self._left())
        assert not settlement.journaled or self.spill is not None
        assert bool(settlement) == (not settlement.pending and not self.lost)

    @invariant()
    def all_that_is_kept_beside_the_requests_is_what_they_say(self):
        buffer = self.buffer
        here = [*buffer.unsettled.values()]
        assert buffer.items == sum(one.count for one in here) <= self.max_items
        assert buffer.bytes == sum(measured(one) for one in requests_of(here))
        # At least one is read from the journal, however little room there is.
        largest = 0 if self.spill is None else 100
        assert buffer.bytes <= self.max_bytes + largest or buffer.items == 1
        ready = [one for one in here if one.seq > buffer.taken]
        assert buffer.first_ready is (ready[0] if ready else None)
        assert buffer.ready_items == sum(one.count for one in ready)
        assert buffer.ready_bytes == sum(one.size for one in ready)
        assert all(one.seq + one.count <= other.seq for one, other in pairwise(here))
        assert (buffer.oldest in here) if here else buffer.oldest is None

    @invariant()
    def what_is_in_the_journal_only_is_behind_all_of_memory(self):
        if self.spill is not None:
            ids = [one.journal_id for one in self.buffer.unsettled.values() if one.journal_id]
            assert ids == sorted(ids)
            assert not ids or ids[-1] <= self.buffer._read_to

    def teardown(self) -> None:
        try:
            self.all_comes_to_its_end()
        finally:
            clock.now_s = self.now_s

    def all_comes_to_its_end(self) -> None:
        if not hasattr(self, "buffer"):
            return
        self.strike_the_sender()
        self.come_to_rest()
        self.the_account_is_exact()
        assert self.buffer.state is BufferState.DIRECT
        if self.spill is not None:
            assert self.spill.journal.depth_behind(0) == (0, 0)
        assert sorted([*self.confirmed, *(one.request for one in self.lost)]) == self.accepted
        lost = {one.request[0] for one in self.lost}
        for number, future in self.futures.items():
            assert isinstance(future.exception(0), RequestGivenUp) is (number in lost)


Buffered.TestCase.settings = settings(
    max_examples=300,
    stateful_step_count=30,
    report_multiple_bugs=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
TestBuffered = Buffered.TestCase
