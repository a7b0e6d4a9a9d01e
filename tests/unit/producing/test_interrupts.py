"""An exception at any moment, in any thread: what was accepted is neither lost nor called lost, and
account, log, futures, ``close`` and what a reopened journal holds tell one story.

The exception comes wherever Python itself delivers one: at the start of a function, behind a call,
at a jump back. (Nowhere else can Ctrl-C, another signal's handler or ``PyThreadState_SetAsyncExc``
raise.) The ordinary run tries a sample; with ``LEADERQ_TEST_FAULTS=1000`` every moment of the
caller's thread, and so many of the others.
"""

from __future__ import annotations

import dis
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from faulty_disk import QuickDisk
from scripted_sink import AT_ONCE, ScriptedSink, is_away, takes

from leaderq.errors import BufferFull
from leaderq.producing import EVERY_ITEM, NO_SYNC, PLAIN, Block, BufferedProducer, Journal
from leaderq.producing import producer as producing
from leaderq.testing import eventually
from leaderq.threads import Waker

FAULTS = int(os.environ.get("LEADERQ_TEST_FAULTS", "0") or 0)
MOMENTS = 1_000_000 if FAULTS >= 1000 else max(12, FAULTS)
COUNT = 10


class Interrupt(BaseException):
    """As Ctrl-C raises it."""


_points: dict[CodeType, frozenset[int]] = {}


def points_of(code: CodeType) -> frozenset[int]:
    """Where, in this code, Python looks for signals before it goes on."""
    if code not in _points:
        found, is_behind_call = set(), False
        for one in dis.get_instructions(code):
            if is_behind_call or one.opname.startswith(("JUMP_BACKWARD", "JUMP_ABSOLUTE")):
                found.add(one.offset)
            is_behind_call = one.opname.startswith("CALL") or one.opname == "RESUME"
        _points[code] = frozenset(found)
    return _points[code]


PYTHONS = ("importlib", "weakref", "concurrent/futures", "threading.py", "logging/")
THREADS_OWN = {"run", "_serve", "_run"}


class Tracer:
    """Raises at the moment of this number, in whatever thread it is installed; 0 only counts."""

    def __init__(self, at: int) -> None:
        self.at, self.seen, self.has_raised = at, 0, False
        self.where: Any = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        # What is raised in a finalizer, Python drops; a Condition, a Future or a log handler of
        # Python's own stays locked for ever if it is struck inside; a thread begins in those of
        # these names.
        is_pythons = any(one in frame.f_code.co_filename for one in PYTHONS)
        if self.has_raised or is_pythons or frame.f_code.co_name in THREADS_OWN:
            return None if self.has_raised or is_pythons else self
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and frame.f_lasti in points_of(frame.f_code):
            self.seen += 1
            if self.seen == self.at:
                self.has_raised, self.where = True, (frame.f_code, frame.f_lasti)
                raise Interrupt
        return self

    def around(self, call: Callable[[], Any]) -> None:
        sys.settrace(self)
        try:
            call()
        finally:
            sys.settrace(None)


class Life:
    """One producer, of which one call, or one thread, is interrupted."""

    def __init__(self, place: Path, persistence: Any) -> None:
        self.place, self.sink = place, ScriptedSink(is_away)
        self.journal = Journal(place, sync=persistence or NO_SYNC, disk=QuickDisk())
        self.one = BufferedProducer(
            self.sink,
            journal=self.journal,
            persistence=persistence,
            max_items=4,
            linger_s=0.0,
            batch_items=3,
            retry=AT_ONCE,
            close_timeout_s=0.0,
        )
        self.sent: list[int] = []
        self.unsure: int | None = None
        self.futures: dict[int, Future[Any]] = {}

    def send(self, number: int, with_future: bool) -> None:
        if with_future:
            self.futures[number] = self.one.submit(number)
        else:
            self.one.send(number)
        self.sent.append(number)

    def run(self, tracer: Tracer, target: str, with_future: bool = False) -> None:
        """Send, flush, close; ``target`` is interrupted: a send by its number, or a method."""
        calls = {str(number): partial(self.send, number, with_future) for number in range(COUNT)}
        calls |= {"flush": partial(self.one.flush, 0.01), "snapshot": self.one.snapshot}
        for name, call in {**calls, "close": self.one.close}.items():
            try:
                tracer.around(call) if name == target else call()
            except Interrupt:
                self.unsure = int(name) if name.isdigit() else None

    def end(self, caplog: pytest.LogCaptureFixture) -> None:
        """The sink was away all the time: everything is in the journal."""
        settlement = self.one.close()
        balance = self.one.snapshot().balance
        assert settlement, settlement
        assert balance.is_exact
        accepted = self.sent
        if balance.accepted > len(accepted):
            assert self.unsure is not None
            accepted = sorted({*accepted, self.unsure})
        assert balance.accepted == len(accepted)
        assert (settlement.journaled, settlement.confirmed) == (len(accepted), 0)
        assert balance.pending == len(accepted)
        assert not [one for one in caplog.records if "s lost" in one.getMessage()]
        for future in self.futures.values():
            eventually(future.done)
        assert self.journal._lock.is_held
        self.journal.close()
        with Journal(self.place) as again:
            found = [PLAIN.deserialize(one.payload) for one in again.read()]
            assert found == accepted
        after = ScriptedSink()
        with BufferedProducer(after, journal=self.place, linger_s=0.0) as last:
            assert last.flush(30)
        assert after.confirmed == accepted


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in itertools.count())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("persistence", [None, EVERY_ITEM], ids=["spills", "written ahead"])
@pytest.mark.parametrize("target", [*"012347", "flush", "snapshot", "close"])
def test_interrupted_in_a_call_nothing_accepted_is_lost_or_misreported(
    places, caplog, target, persistence
):
    first, tracer = Life(next(places), persistence), Tracer(0)
    first.run(tracer, target)
    first.end(caplog)
    moments = range(1, tracer.seen + 1)
    luck = random.Random(target)
    for at in luck.sample(moments, min(MOMENTS, len(moments))):
        life, tracer = Life(next(places), persistence), Tracer(at)
        life.run(tracer, target, with_future=persistence is None and at % 2 == 0)
        life.end(caplog)


def test_interrupted_while_it_waits_for_room_a_send_holds_up_nobody_behind_it(
    producer, sink, at, monkeypatch
):
    class Jump(Waker):
        def wait(self, timeout_s: float | None = None) -> bool:
            at[0] += 1.0
            return False

    monkeypatch.setattr(producing, "Waker", Jump)
    sink.shut()
    one = producer(max_items=1, when_full=Block(1.0), sink_timeout_s=60.0, sends=["a"])
    tracer = Tracer(0)
    with pytest.raises(BufferFull):
        tracer.around(lambda: one.send("b"))
    for moment in range(1, tracer.seen + 1):
        with pytest.raises((BufferFull, Interrupt)):
            Tracer(moment).around(lambda: one.send("b"))
        assert not one._buffer.awaiting_room
        one.snapshot()  # what was left unfinished is finished, else the next call does more
    assert one.snapshot().balance.accepted == 1


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("persistence", [None, EVERY_ITEM], ids=["spills", "written ahead"])
@pytest.mark.parametrize("thread", ["producer-sender", "journal", "producer-journal-reader"])
def test_interrupted_in_a_thread_of_its_own_a_producer_goes_on_and_loses_nothing(
    places, caplog, thread, persistence
):
    name = f"leaderq-{thread}"
    luck = random.Random(name)
    for _ in range(max(15, FAULTS // 3)):
        tracer = Tracer(luck.randrange(1, 700))

        def trace(*args: Any, tracer: Tracer = tracer) -> Any:
            is_it = threading.current_thread().name == name
            return tracer(*args) if is_it else None

        threading.settrace(trace)
        try:
            life = Life(next(places), persistence)
        finally:
            threading.settrace(None)
        for number in range(COUNT):
            life.send(number, number % 3 == 0 and persistence is None)
        life.sink.now(takes)
        for number in range(COUNT, 2 * COUNT):
            life.send(number, False)
        settlement = life.one.flush(60)
        assert settlement, tracer.where
        balance = life.one.snapshot().balance
        assert (balance.accepted, balance.confirmed, balance.lost) == (2 * COUNT, 2 * COUNT, 0)
        # A batch that was confirmed, which the producer did not come to note, is sent again.
        assert list(dict.fromkeys(life.sink.confirmed)) == list(range(2 * COUNT))
        for future in life.futures.values():
            eventually(future.done)
            assert future.exception() is None
        assert life.one.close()
        life.journal.close()
        assert not [one for one in caplog.records if "s lost" in one.getMessage()]
        with Journal(life.place) as again:
            assert again.depth == 0
