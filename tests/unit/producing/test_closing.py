"""What flush, close and the end of a program say of the requests that were accepted."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable
from functools import partial
from typing import Any

import pytest
from faulty_disk import failing, flip, io_error, is_segment
from scripted_sink import is_away, refuses, takes
from tasks import busy_default_executor

from leaderq import producing
from leaderq.errors import ProducerClosed, RequestsLost
from leaderq.producing import NO_SYNC, Block, BufferedProducer, Journal, LossReason, Retry, WhenFull
from leaderq.testing import eventually


@pytest.mark.parametrize("policy", [producing.Every(100), producing.Interval(86_400.0), NO_SYNC])
@pytest.mark.parametrize("end", ["flush", "close", "block"])
def test_what_the_disk_did_not_force_out_is_not_safely_in_the_journal(
    sink, disk, tmp_path, policy, end
):
    sink.now(is_away)
    with Journal(tmp_path, sync=policy, disk=disk) as journal:
        one = BufferedProducer(sink, journal=journal, persistence=policy, close_timeout_s=0.0)
        one.send("a")
        eventually(lambda: one.flush(0.0).journaled == 1)
        assert one.flush(0.0)  # the disk forces it out
        one.send("b")
        disk.fail["sync"] = failing(io_error, only=partial(is_segment, tmp_path))
        if end == "block":
            with pytest.raises(RequestsLost, match="Input/output error"), one:
                pass
            return
        settlement = one.flush(0.01) if end == "flush" else one.close()
        assert not settlement
        assert (settlement.journaled, settlement.pending) == (2, 0)
        assert "Input/output error" in str(settlement.journal_error)
        assert not one.close()  # a second sync may succeed; what the first one lost is lost


REASONS = {
    LossReason.NEWEST: ([is_away], {"max_items": 1, "when_full": WhenFull.DROP_NEWEST}),
    LossReason.OLDEST: ([is_away], {"max_items": 1, "when_full": WhenFull.DROP_OLDEST}),
    LossReason.EXPIRED: ([takes], {"ttl_s": 0.0}),
    LossReason.CLOSED: ([is_away], {}),
    LossReason.CORRUPT: ([takes], {"journal": "spoilt"}),
    LossReason.UNDECODABLE: ([takes], {"journal": "strange"}),
    LossReason.JOURNAL: ([is_away], {"journal": "full"}),
    LossReason.REFUSED: ([refuses(*range(9))], {}),
    LossReason.ATTEMPTS: ([is_away], {"retry": Retry(first_s=0.001, most_s=0.002, attempts=2)}),
}


@pytest.mark.parametrize("reason", list(REASONS))
def test_a_request_lost_for_any_reason_is_logged_and_counted(
    producer, sink, disk, tmp_path, caplog, reason
):
    script, options = REASONS[reason]
    sink.now(*script)
    with Journal(tmp_path, sync=NO_SYNC, disk=disk) as journal:
        if (state := options.get("journal")) is not None:
            options = {**options, "journal": journal}
            if state == "strange":
                journal.append(b"not a request")
            elif state == "spoilt":
                journal.append_many([producing.PLAIN.serialize(b"x" * 50)] * 3)
                (segment,) = tmp_path.glob("*.seg")
                flip(segment, segment.read_bytes().index(b"xx"))
        one = producer(**options, sends=range(3))
        disk.room = 0 if state == "full" else None
        if reason is not LossReason.CLOSED:
            eventually(lambda: one.flush(0.0).lost or state == "full")
        settlement = one.close(0.0 if sink.script == [is_away] else 30)
        lost = settlement.lost
        assert not settlement and not one.close()  # asked again, it says the same
        assert reason in {loss.reason for loss in settlement.losses}
        lines = [record.args for record in caplog.records if "requests lost" in record.getMessage()]
        counted = sum(args[2] for args in lines if args[1] == reason.value)
        assert counted == lost[reason.value] > 0
        if reason in (LossReason.CORRUPT, LossReason.UNDECODABLE):
            # It keeps nothing else from being sent.
            old = [b"x" * 50] * 2 if reason is LossReason.CORRUPT else []
            assert sink.confirmed == [*old, 0, 1, 2]
            balance = one.snapshot().balance
            assert balance.recovered == len(old) + 1
            assert balance.confirmed == len(sink.confirmed)


_ENDS = """
import sys
from leaderq.producing import BufferedProducer, CallableSink

def away(batch):
    raise OSError("away")

producer = BufferedProducer(CallableSink(away), journal=sys.argv[1] or None)
for number in range(100):
    producer.send(number)
"""


def test_a_program_that_ends_without_closing_leaves_all_in_the_journal_or_is_told_of_the_loss(
    tmp_path,
):
    for journal, ending in (str(tmp_path), "raise KeyboardInterrupt"), ("", ""):
        command = [sys.executable, "-c", _ENDS + ending, journal]
        ended = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
        assert ended.returncode in (0, -signal.SIGINT)
        assert ("'closed before it was sent': 100" in ended.stderr) is not bool(journal)
    with Journal(tmp_path) as left:
        assert left.depth == 100


async def beside(
    waiting: Awaitable[object], until: threading.Event | asyncio.Event
) -> tuple[int, object]:
    """Await it, count the loop's turns, set ``until`` at the 50th; no executor is free."""
    turns = 0
    async with busy_default_executor():
        task = asyncio.ensure_future(waiting)
        while not task.done():
            await asyncio.sleep(0.001)
            turns += 1
            if turns == 50:
                until.set()
        return turns, task.result()


@pytest.mark.parametrize("waits", ["send", "flush", "close"])
def test_a_loop_goes_on_whatever_is_waited_for(producer, sink, waits):
    sink.shut()
    one = producer(max_items=1, when_full=Block(None), sink_timeout_s=60.0, sends=["a"])
    calls: dict[str, Any] = {
        "send": partial(one.asend, "b"),
        "flush": partial(one.aflush, 60.0),
        "close": partial(one.aclose, 60.0),
    }
    turns, outcome = asyncio.run(beside(calls[waits](), sink.open))
    assert (turns >= 50, bool(outcome)) == (True, True)
    assert one.close(30).confirmed == len(sink.confirmed)
    assert sink.confirmed == (["a", "b"] if waits == "send" else ["a"])


@pytest.mark.parametrize("end", ["its task is cancelled", "its loop is closed"])
def test_a_send_that_will_never_go_on_took_nothing_and_holds_up_nobody(producer, sink, end):
    sink.shut()
    one = producer(max_items=1, when_full=Block(None), sink_timeout_s=60.0, sends=["a"])
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(one.asend("b"))
    while not one._buffer.awaiting_room:
        loop.run_until_complete(asyncio.sleep(0.001))
    if end == "its task is cancelled":
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(waiting)
        assert not one._buffer.awaiting_room
    loop.close()
    sink.open.set()
    one.send("c", timeout_s=60.0)
    assert one.flush(30)
    assert sink.confirmed == ["a", "c"]
    assert waiting.done() == waiting.cancelled() == (end == "its task is cancelled")
    waiting._log_destroy_pending = False


def test_what_a_sink_that_was_left_behind_says_later_is_ignored(
    producer, sink, place, monkeypatch, caplog
):
    monkeypatch.setattr(producing.sending, "_STOP_S", 0.01)
    sink.shut()
    one = producer(journal=place, sink_timeout_s=60.0)
    future = one.submit("a")
    eventually(lambda: sink.handed)
    settlement = one.close(0.0)
    assert (settlement.journaled, settlement.confirmed) == (1, 0)
    sink.open.set()
    eventually(lambda: not one._sender.service.is_running)
    assert sink.confirmed == ["a"]
    assert one.close() == one.flush() == settlement
    assert "not forced out" not in caplog.text
    with pytest.raises(ProducerClosed, match="is sent from there"):
        future.result(0)


def test_async_with_closes_and_tells_of_losses(sink):
    async def block(**options: Any) -> None:
        async with BufferedProducer(sink, linger_s=0.0, **options) as one:
            assert await one.asend("a")

    asyncio.run(block())
    assert sink.confirmed == ["a"]
    sink.now(is_away)
    with pytest.raises(RequestsLost):
        asyncio.run(block(close_timeout_s=0.01))
