"""Keys without a hash, requests changed after they were sent, a disk that is behind, a fork, and
Ctrl-C in a close.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from scripted_sink import Make, ScriptedSink, is_away, takes

from leaderq.errors import ConfigurationError, ProducerClosed
from leaderq.producing import BufferState, Lost
from leaderq.testing import eventually


@pytest.mark.parametrize("workers", [1, 2])
def test_a_key_without_a_hash_is_refused_before_anything_is_counted(
    producer: Make, workers: int
) -> None:
    one = producer(process=lambda request: request, key=lambda request: [request], workers=workers)
    with pytest.raises(
        ConfigurationError, match="key returned a list for a request, which has no hash"
    ):
        one.send(1)
    balance = one.snapshot().balance
    assert (balance.accepted, balance.pending) == (0, 0)
    assert one.close()


def test_a_request_changed_after_it_was_sent_costs_no_other_caller_anything(
    producer: Make, sink: ScriptedSink, tmp_path: Path
) -> None:
    sink.now(is_away)
    lost: list[Lost] = []
    one = producer(journal=tmp_path, max_items=8, dropped_listener=lost.append)
    changed: dict[str, Any] = {"a": 1}
    for request in ("before", changed, "behind"):
        one.send(request)
    changed["a"] = object()
    for number in range(8):
        one.send(number)
    assert one.state is BufferState.SPILLING
    assert not one.close(0.05)
    balance = one.snapshot().balance
    assert balance.is_exact
    assert (balance.accepted, balance.pending) == (11, 10)
    assert balance.dropped == {"not written to the journal": 1}
    eventually(lambda: [one.request for one in lost] == [changed])
    assert isinstance(lost[0].error, ConfigurationError)
    sink.now(takes)
    after = producer(journal=tmp_path)
    assert after.flush(30)
    assert sink.confirmed == ["before", "behind", *range(8)]


def test_a_forked_child_is_refused_whatever_it_asks_even_if_the_lock_was_held(
    producer: Make,
) -> None:
    one = producer()
    with one._buffer._lock:  # by another thread, say, which the child does not have
        child = os.fork()
        if child == 0:
            refused = 0
            for ask in (one.flush, one.snapshot, lambda: one.send(1)):
                try:
                    ask()
                except ProducerClosed:
                    refused += 1
            os._exit(0 if refused == 3 and one.close() else 1)
    done: list[int] = []

    def is_done() -> bool:
        number, status = os.waitpid(child, os.WNOHANG)
        done.extend([status] if number else [])
        return bool(done)

    try:
        eventually(is_done)
    finally:
        if not done:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(done[0]) == 0
