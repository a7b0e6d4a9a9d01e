"""Reading what a :class:`~leaderq.kafka.sink.KafkaSink` with ``packing="frame"`` has packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from leaderq.kafka.record import Record
from leaderq.producing.frame import FRAME_HEADER, unpack_frame


class UnpackedRecord(Record):
    """A record that came in a frame: topic, partition and offset are the frame's; ``frame_index``
    is its place in it, from 0."""

    frame_index: int

    def __reduce__(self) -> Any:
        return _unpacked_record, (*self.as_dict().values(), self.frame_index)


def _unpacked_record(*fields: Any) -> UnpackedRecord:
    *values, index = fields
    record = tuple.__new__(UnpackedRecord, values)
    record.frame_index = index
    return record


def unpacked(records: Iterable[Record]) -> Iterator[Record]:
    """``records`` with each frame replaced by the records in it, in order; others pass as they are.

    For a handler of :class:`~leaderq.kafka.KafkaLeaderCareer` whose topic is fed with
    ``packing="frame"``. A handler that tells records by their offset must add
    :attr:`UnpackedRecord.frame_index`.

    :raises CorruptRecord: a frame is not what was packed.
    """
    for record in records:
        if not any(name == FRAME_HEADER for name, _ in record.headers):
            yield record
            continue
        for index, piece in enumerate(unpack_frame(record.value)):
            timestamp_ms = record.timestamp_ms if piece.timestamp_ms < 0 else piece.timestamp_ms
            yield _unpacked_record(
                record.topic, record.partition, record.offset, timestamp_ms, piece.key, piece.value, piece.headers, index
            )
