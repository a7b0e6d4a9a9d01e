"""A backlog is not given up: whatever interrupts, however small the disk, whichever codec."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import QuickDisk
from scripted_sink import AT_ONCE, ScriptedSink, is_away, takes

from leaderq.errors import BufferFull, ConfigurationError
from leaderq.producing import (
    EVERY_ITEM,
    NO_SYNC,
    BufferedProducer,
    BufferState,
    Journal,
    WhenFull,
)
from leaderq.testing import eventually

MIB = 1 << 20


@pytest.mark.parametrize("persistence", [None, EVERY_ITEM], ids=["spills", "written ahead"])
@pytest.mark.parametrize(
    ("mib", "size"), [(0.3, 600), (0.8, 200), (4.8, 2000)], ids=["3 MB", "8 MB", "48 MB"]
)
def test_h2_all_that_a_disk_of_fixed_size_could_not_take_arrives_when_the_sink_is_back(
    sink, tmp_path, caplog, persistence, mib, size
):
    """A tenth of the sizes of real volumes, and of everything else."""
    caplog.set_level(logging.INFO)
    sink.now(is_away)
    disk = QuickDisk(int(mib * MIB))
    segment_bytes = int(3.2 * MIB)
    with Journal(
        tmp_path, sync=persistence or NO_SYNC, segment_bytes=segment_bytes, disk=disk
    ) as journal:
        one = BufferedProducer(
            sink,
            journal=journal,
            persistence=persistence,
            max_items=100,
            linger_s=0.0,
            retry=AT_ONCE,
            when_full=WhenFull.RAISE,
        )
        taken = 0
        with pytest.raises(BufferFull, match="takes nothing: no space is left"):
            while True:
                one.submit((taken, b"x" * size))
                taken += 1
        snapshot = one.snapshot()
        assert snapshot.state is BufferState.BLOCKED
        assert not snapshot.journal_takes
        assert "no space is left" in str(snapshot.journal_error)
        said = [line for line in caplog.messages if "journal takes nothing" in line]
        assert len(said) == 1
        sink.now(takes)
        assert one.flush(60)
        assert [number for number, _ in sink.confirmed] == list(range(taken))
        eventually(lambda: one.state is BufferState.DIRECT)
        eventually(lambda: journal.trouble is None and (disk.room or 0) > 0.1 * mib * MIB)
        for number in range(taken, taken + 300):
            one.send((number, b""), timeout_s=60)
        assert one.close()
        assert one.snapshot().balance.lost == 0
    with Journal(tmp_path) as again:
        assert again.depth == 0


class Json:
    """A codec that the next start forgets."""

    def serialize(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def deserialize(self, data: bytes) -> Any:
        return json.loads(data)


def durable(sink: ScriptedSink, place: Path, requests: Sequence[Any]) -> None:
    sink.now(is_away)
    with BufferedProducer(
        sink, journal=place, persistence=NO_SYNC, codec=Json(), close_timeout_s=0.0, retry=AT_ONCE
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
    if count > 9:  # else these few are passed over
        with pytest.raises(ConfigurationError, match="and this key"):
            producer(journal=tmp_path, codec=Json(), key=lambda request: request["user"])
    sink.now(takes)
    assert producer(journal=tmp_path, codec=Json()).flush(60)
    assert sink.confirmed == [[number] for number in range(count)]


def test_h3_what_cannot_be_read_is_kept_and_counted_and_keeps_nothing_else_from_being_sent(
    producer, sink, tmp_path
):
    durable(sink, tmp_path, [{"user": 1}, {}, {"user": 2}, {}])
    sink.now(takes)
    one = producer(journal=tmp_path, codec=Json(), key=lambda request: request["user"])
    settlement = one.flush(60)
    assert settlement.lost == {"kept in the journal, cannot be decoded": 2}
    assert one.snapshot().balance.is_exact
    assert sink.confirmed == [{"user": 1}, {"user": 2}]
    assert not one.close()
    with Journal(tmp_path) as journal:
        assert journal.depth == 2
    assert producer(journal=tmp_path, codec=Json()).flush(60)
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
