"""Requests sent by finalizers, signal handlers and logging handlers, whatever they interrupt."""

from __future__ import annotations

import contextlib
import itertools
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from scripted_sink import Make, ScriptedSink

from leaderq.errors import BufferFull, WouldDeadlock
from leaderq.producing import NO_SYNC, Journal, WhenFull


@pytest.mark.parametrize("lock", ["buffer", "journal"])
def test_a_call_that_interrupts_its_own_thread_inside_is_refused_at_once(
    producer: Make, sink: ScriptedSink, tmp_path: Path, lock: str
) -> None:
    journal = Journal(tmp_path, sync=NO_SYNC)
    one = producer(journal=journal, persistence=NO_SYNC)
    calls: list[Any] = [
        lambda: one.send(1),
        lambda: one.submit(1),
        one.snapshot,
        one.flush,
        one.close,
    ]
    held = one._buffer._lock if lock == "buffer" else journal._gate
    if lock == "journal":
        calls += [
            lambda: journal.append(b"x"),
            lambda: journal.append_soon(b"x"),
            journal.flush,
            journal.close,
        ]
    with held:  # as the interrupted thread does
        for call in calls:
            with pytest.raises(WouldDeadlock):
                call()
    assert one.snapshot().balance.accepted == 0
    one.send(2)
    assert one.flush(30)
    one.close()
    journal.close()


@pytest.mark.timeout(120, method="thread")  # the other method needs the alarm that is used here
@pytest.mark.parametrize("has_journal", [False, True])
def test_a_signal_handler_may_send_whatever_it_interrupts(
    producer: Make, sink: ScriptedSink, tmp_path: Path, has_journal: bool
) -> None:
    one = producer(
        journal=tmp_path if has_journal else None,
        max_items=50,
        when_full=WhenFull.RAISE,
        batch_items=7,
    )
    taken: list[int] = []  # by handlers that interrupt each other, so not in order
    numbers = itertools.count()

    def handler(signum: int, frame: Any) -> None:
        number = next(numbers)
        with contextlib.suppress(WouldDeadlock, BufferFull):
            one.send(("handler", number))
            taken.append(number)

    sent = 0
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        while len(taken) < 200:
            with contextlib.suppress(BufferFull):
                one.send(("main", sent))
                sent += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert one.flush(60)
    assert sorted(n for who, n in sink.confirmed if who == "handler") == sorted(taken)
    assert [n for who, n in sink.confirmed if who == "main"] == list(range(sent))


def test_an_exception_thrown_into_threads_that_append_wedges_no_journal(tmp_path: Path) -> None:
    """As a time limit of a task queue does it."""
    import ctypes

    class Limit(Exception):
        pass

    done = threading.Event()
    with Journal(tmp_path, sync=NO_SYNC) as journal:

        def work() -> None:
            while not done.is_set():
                with contextlib.suppress(Limit):
                    while not done.is_set():
                        journal.append(b"x")

        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(300):
            ident = ctypes.c_ulong(threads[number % 3].ident or 0)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Limit))
            time.sleep(0.0005)  # so that it strikes at another step
        done.set()
        for thread in threads:
            thread.join(30)
        assert journal.append(b"last", timeout_s=30) == journal.depth
