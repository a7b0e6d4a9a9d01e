"""Room in memory, and a producer with a journal: what does not fit, what is left at the close, what
is written ahead."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faulty_disk import QuickDisk
from scripted_sink import AT_ONCE, ScriptedSink, is_away, takes

from leaderq import producing
from leaderq.errors import BufferFull, ConfigurationError, JournalSlow
from leaderq.producing import EVERY_ITEM, NO_SYNC, BufferState, Every, Interval, Journal, WhenFull
from leaderq.producing.journal.inspection import entries
from leaderq.testing import eventually


def test_a_sink_that_has_just_taken_some_gets_a_moment_before_memory_is_spilled(
    producer, sink, tmp_path, at
):
    """Time stands, so the moment does not pass."""
    one = producer(journal=tmp_path, max_items=4, batch_items=1, sink_timeout_s=60.0)
    one.send("taken")
    eventually(lambda: sink.confirmed == ["taken"])
    sink.shut()
    others = [threading.Thread(target=one.send, args=(number,)) for number in range(6)]
    for other in others:
        other.start()
        other.join(1.0 if other in others[:3] else 0.0)
    eventually(lambda: len(one._buffer.awaiting_room) == 3)
    sink.open.set()
    for other in others:
        other.join()
    assert one.flush(30)
    assert (one.snapshot().spilled, one.snapshot().balance.confirmed) == (0, 7)


def test_callers_wait_at_the_bound_and_proceed_one_for_one_in_their_order(producer):
    may, confirmed = threading.Semaphore(0), list[int]()
    sink = producing.CallableSink(lambda one: may.acquire() and confirmed.append(one), each=True)
    one = producer(sink, max_items=10, batch_items=1, when_full=producing.Block(None))
    for number in range(10):
        one.send(number, timeout_s=0.0)  # not one of them waits
    waiting: list[threading.Thread] = []
    for number in range(10, 15):
        waiting.append(threading.Thread(target=one.send, args=(number,), daemon=True))
        waiting[-1].start()
        eventually(lambda: len(one._buffer.awaiting_room) == len(waiting))
    for released, thread in enumerate(waiting, 1):
        may.release()
        thread.join(30)
        assert len(one._buffer.awaiting_room) == 5 - released
        assert one.snapshot().memory_items == 10
    may.release(10)
    assert one.flush(30)
    assert confirmed == list(range(15))


def numbers_in(place: Path) -> list[int]:
    """What a producer would read there if this process were killed now."""
    return [producing.PLAIN.deserialize(record.payload)[0] for record in entries(place)]


@pytest.mark.parametrize(
    "persistence", [None, Interval(0.01), EVERY_ITEM], ids=["None", "Interval", "EVERY_ITEM"]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_disk_full_now_and_then_keeps_order_and_promises_over_a_crash_at_any_moment(
    producer, sink, tmp_path, persistence, seed
):
    luck, disk = random.Random(seed), QuickDisk()
    sink.now(is_away)
    with Journal(tmp_path, sync=persistence or NO_SYNC, disk=disk) as journal:
        one = producer(
            journal=journal, persistence=persistence, max_items=20, when_full=WhenFull.RAISE
        )
        taken: list[int] = []
        promised: list[int] = []
        refused: list[int] = []

        def tell(number: int, error: BaseException | None) -> None:
            (promised if error is None else refused).append(number)

        for number in range(300):
            disk.is_full = luck.random() < 0.3
            with suppress(BufferFull):
                if persistence is None or luck.random() < 0.5:
                    one.submit((number,))
                else:
                    one.send((number,), on_durable=partial(tell, number))
                taken.append(number)
            if luck.random() < 0.1:
                known = list(promised)
                stored = numbers_in(tmp_path)
                assert stored == taken[: len(stored)], "no gap"
                assert set(known) <= set(stored)
            if luck.random() < 0.05:
                disk.is_full = False
                eventually(lambda: one.state is not BufferState.BLOCKED)
        disk.is_full = False
        taken += eventually(lambda: one.submit((300,))) and [300]
        if persistence is not None:  # what the disk refused is there when it has room again
            eventually(lambda: set(taken) - set(refused) <= set(numbers_in(tmp_path)))
        sink.now(takes)
        assert one.flush(30).pending == 0
        sent = [number for (number,) in sink.confirmed]
        assert sent == [one for one in taken if one in set(sent)]
        assert set(taken) - set(sent) <= set(refused)
        assert one.close(30).pending == 0


def test_every_n_written_ahead_a_send_waits_while_n_are_on_their_way_to_the_file(
    producer, disk, tmp_path, monkeypatch
):
    may, ends = threading.Event(), list[int]()
    may.set()
    disk.fail["write"] = lambda *_: may.wait(30)
    with Journal(tmp_path, sync=Every(3), disk=disk) as journal:
        real = journal.await_stored
        may.clear()  # nothing more is written until somebody waits for that

        def awaited(end_id: int, **given: Any) -> None:
            ends.append(end_id)
            may.set()
            real(end_id, **given)

        monkeypatch.setattr(journal, "await_stored", awaited)
        one = producer(journal=journal, persistence=Every(3), sink_timeout_s=10.0)
        for number, asked in enumerate([[], [], [2]]):
            one.send(number)
            assert ends == asked
        assert journal.stored_id >= 1
        assert one.close()


@pytest.mark.parametrize("is_task", [False, True], ids=["send", "asend"])
@pytest.mark.parametrize("persistence", [EVERY_ITEM, Every(2)], ids=["EVERY_ITEM", "Every(2)"])
def test_a_call_whose_request_the_disk_refuses_is_told_and_the_request_is_sent(
    producer, sink, tmp_path, monkeypatch, persistence, is_task
):
    may, disk = threading.Event(), QuickDisk()
    sink.now(is_away)
    with Journal(tmp_path, sync=persistence, disk=disk) as journal:
        real = journal._committer.wait_stored

        def waits(*args: Any, **given: Any) -> Any:
            waiter = real(*args, **given)
            may.set()  # not before: nothing more would be taken
            return waiter

        monkeypatch.setattr(journal._committer, "wait_stored", waits)
        disk.fail["create"] = disk.fail["write"] = lambda *_: may.wait(30)
        one = producer(journal=journal, persistence=persistence)
        disk.is_full = True
        with pytest.raises(JournalSlow, match="do not append it again"):
            for number in range(persistence.items):
                asyncio.run(one.asend(number)) if is_task else one.send(number)
        disk.is_full = False
        sink.now(takes)
        assert one.flush(30)
        assert sink.confirmed == list(range(persistence.items))


@pytest.mark.parametrize("persistence", [None, EVERY_ITEM], ids=["spills", "written ahead"])
@pytest.mark.parametrize(
    ("mib", "size"), [(0.3, 600), (0.8, 200), (4.8, 2000)], ids=["3 MB", "8 MB", "48 MB"]
)
def test_h2_all_that_a_disk_of_fixed_size_could_not_take_arrives_when_the_sink_is_back(
    producer, sink, tmp_path, persistence, mib, size
):
    """A tenth of the sizes of real volumes, and of everything else."""
    sink.now(is_away)
    disk, sync = QuickDisk(int(mib * 2**20)), persistence or NO_SYNC
    with Journal(tmp_path, sync=sync, segment_bytes=int(3.2 * 2**20), disk=disk) as journal:
        one = producer(
            journal=journal, persistence=persistence, max_items=100, when_full=WhenFull.RAISE
        )
        taken = 0
        with pytest.raises(BufferFull, match="takes nothing: no space is left"):
            while True:
                one.submit((taken, b"x" * size))
                taken += 1
        snapshot = one.snapshot()
        assert (snapshot.state, snapshot.journal_takes) == (BufferState.BLOCKED, False)
        assert "no space is left" in str(snapshot.journal_error)
        sink.now(takes)
        assert one.flush(60)
        assert [number for number, _ in sink.confirmed] == list(range(taken))
        eventually(lambda: one.state is BufferState.DIRECT)
        eventually(lambda: journal.trouble is None and (disk.room or 0) > 0.1 * mib * 2**20)
        for number in range(taken, taken + 300):
            one.send((number, b""), timeout_s=60)
        assert one.close()
        assert one.snapshot().balance.lost == 0
    with Journal(tmp_path) as again:
        assert again.depth == 0


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


JSON = SimpleNamespace(name="Json", serialize=encoded, deserialize=json.loads)
"""A codec that the next start forgets."""


def durable(sink: ScriptedSink, place: Path, requests: Sequence[Any]) -> None:
    sink.now(is_away)
    with producing.BufferedProducer(
        sink, journal=place, persistence=NO_SYNC, codec=JSON, close_timeout_s=0.0, retry=AT_ONCE
    ) as one:
        for request in requests:
            one.send(request)


@pytest.mark.parametrize("count", [1, 2000])
def test_h3_a_forgotten_codec_is_refused_with_its_name_and_costs_nothing(
    producer, sink, tmp_path, count
):
    durable(sink, tmp_path, [[number] for number in range(count)])
    with pytest.raises(
        ConfigurationError, match=r"for codec 'PlainCodec'.*its segments say that another codec"
    ):
        producer(journal=tmp_path)
    later = SimpleNamespace(serialize=encoded, deserialize=lambda _: Future(), name="Json")
    if count > 9:  # else these few are passed over
        with pytest.raises(ConfigurationError, match="the codec's deserialize returned"):
            producer(journal=tmp_path, codec=later)
        with pytest.raises(ConfigurationError, match="and this key"):
            producer(journal=tmp_path, codec=JSON, key=lambda request: request["user"])
    sink.now(takes)
    assert producer(journal=tmp_path, codec=JSON).flush(60)
    assert sink.confirmed == [[number] for number in range(count)]


def test_h3_what_cannot_be_read_is_kept_and_counted_and_keeps_nothing_else_from_being_sent(
    producer, sink, tmp_path
):
    durable(sink, tmp_path, [{"user": 1}, {}, {"user": 2}, {}])
    sink.now(takes)
    struck = iter([sys.exit])  # whatever it raises

    def key(request: Any) -> Any:
        return request["user"] if request else next(struck, {}.__getitem__)("user")

    one = producer(journal=tmp_path, codec=JSON, key=key)
    settlement = one.flush(60)
    assert settlement.lost == {"kept in the journal, cannot be decoded": 2}
    assert one.snapshot().balance.is_exact
    assert sink.confirmed == [{"user": 1}, {"user": 2}]
    assert not one.close()
    with Journal(tmp_path) as journal:
        assert journal.depth == 2
    assert producer(journal=tmp_path, codec=JSON).flush(60)
    assert sink.confirmed[2:] == [{}, {}]


def test_a_journal_that_a_producer_uses_takes_nothing_of_others(producer, tmp_path):
    with Journal(tmp_path, sync=NO_SYNC) as journal:
        one = producer(journal=journal)
        for use in (
            lambda: journal.append(b""),
            lambda: journal.append_soon(b""),
            lambda: producer(journal=journal),
        ):
            with pytest.raises(ConfigurationError, match="is a producer's at present"):
                use()
        one.close()
        assert journal.append(b"")


def test_near_its_high_mark_memory_is_written_down_in_advance_once_the_sink_is_still(
    producer, sink, tmp_path, monkeypatch
):
    one = producer(journal=tmp_path, max_items=8, sink_timeout_s=60.0, sends=["taken"])
    assert one.flush(30)
    sink.shut()
    monkeypatch.setattr(producing.buffer, "_MOVING_S", 0.0)
    for number in range(5):
        one.send(number)
    assert one._spill.journal.next_id == 1
    for number in range(5, 7):
        one.send(number)
    assert one._spill.journal.next_id == 8
    assert (one.state, one.snapshot().journal_only) == (BufferState.DIRECT, 0)
    sink.open.set()
    assert one.flush(30)
    assert sink.confirmed == ["taken", *range(7)]
