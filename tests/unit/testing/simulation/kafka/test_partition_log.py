"""The log of a simulated partition."""

from __future__ import annotations

import pytest

from leaderq.kafka.record import Record
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker
from leaderq.testing.simulation.kafka.partition_log import PartitionLog, ProducerStamp


def rows(*values: bytes) -> list[Record]:
    return [Record("t", 0, -1, 1, None, value) for value in values]


def values_read(log: PartitionLog, offset: int = 0, *, is_stable: bool = True) -> list[bytes]:
    return [row.value for row in log.read(offset, 100, is_stable=is_stable).records]


@pytest.fixture
def log() -> PartitionLog:
    return PartitionLog("t", 0)


def test_the_oldest_of_two_open_transactions_holds_it(log: PartitionLog) -> None:
    log.append(rows(b"first"), ProducerStamp(1, 0, 0, transactional=True))
    log.append(rows(b"second"), ProducerStamp(2, 0, 0, transactional=True))
    log.end_transaction(1, 0, is_committed=True)
    assert values_read(log) == [b"first"]
    log.end_transaction(2, 0, is_committed=False)
    assert values_read(log) == [b"first"]
    assert log.read(0, 100).next_offset == 4


def test_only_the_records_of_the_aborted_transaction_are_passed_over(log: PartitionLog) -> None:
    log.append(rows(b"aborted"), ProducerStamp(1, 0, 0, transactional=True))
    log.append(rows(b"plain"))
    log.append(rows(b"aborted too"), ProducerStamp(1, 0, 1, transactional=True))
    log.end_transaction(1, 0, is_committed=False)
    log.append(rows(b"kept"), ProducerStamp(1, 0, 2, transactional=True))
    log.end_transaction(1, 0, is_committed=True)
    assert values_read(log) == [b"plain", b"kept"]


def test_markers_behind_the_last_record_are_passed_over_at_once(log: PartitionLog) -> None:
    log.append(rows(b"a"), ProducerStamp(1, 0, 0, transactional=True))
    log.end_transaction(1, 0, is_committed=True)
    assert log.read(0, 1).next_offset == 2


def test_a_batch_that_is_sent_again_is_stored_once(log: PartitionLog) -> None:
    by = ProducerStamp(1, 0, 0)
    assert log.append(rows(b"a", b"b"), by) == 0
    assert log.append(rows(b"a", b"b"), by) == 0
    assert log.append(rows(b"c"), by._replace(sequence=2)) == 2
    assert values_read(log) == [b"a", b"b", b"c"]


def test_a_batch_behind_a_gap_is_refused(log: PartitionLog) -> None:
    log.append(rows(b"a"), ProducerStamp(1, 0, 0))
    with pytest.raises(RefusedByBroker) as refused:
        log.append(rows(b"c"), ProducerStamp(1, 0, 2))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_former_epoch_is_refused_once_the_log_has_seen_a_newer_one(log: PartitionLog) -> None:
    log.append(rows(b"a"), ProducerStamp(1, 0, 0, transactional=True))
    log.end_transaction(1, 1, is_committed=False)
    with pytest.raises(RefusedByBroker) as refused:
        log.append(rows(b"late"), ProducerStamp(1, 0, 1, transactional=True))
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("offset", [1, 7])
def test_an_offset_outside_the_log_is_refused(log: PartitionLog, offset: int) -> None:
    log.append(rows(b"a", b"b", b"c"))
    log.delete_before(2)
    assert (log.start, log.end) == (2, 3)
    with pytest.raises(RefusedByBroker) as refused:
        log.read(offset, 10)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_read(log, 2) == [b"c"]


def test_who_has_read_what_was_cut_off_is_told_by_the_epoch(log: PartitionLog) -> None:
    log.append(rows(b"a", b"b", b"c"))
    log.cut_off(1)
    log.epoch = 1
    log.append(rows(b"x", b"y", b"z"))
    assert log.end_of_epoch(0) == 1
    assert log.has_diverged(3, 0)
    assert not log.has_diverged(1, 0)
    assert not log.has_diverged(3, 1)
    assert values_read(log) == [b"a", b"x", b"y", b"z"]
