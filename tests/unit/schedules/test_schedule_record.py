from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from leaderq.errors import CorruptRecord
from leaderq.schedules import record as records
from leaderq.schedules.definition import When
from leaderq.schedules.record import PassedOver, ScheduleWishes, TickGap, TickRun, decode, encode

RUN = TickRun(5, 6, 7, "a", 2, 3, 8, records.TickOutcome.FAILED, "OSError", "key")
GAP = TickGap(1, 4, 2, PassedOver.TOO_OLD)
EMPTY = records.ScheduleRecord(9, When(every_ms=1))
FULL = records.ScheduleRecord(
    9, When(cron="5 * * * *"), 10, RUN, 11, 12, (RUN, GAP), {"later": [1]}
)


@pytest.mark.parametrize("record", [EMPTY, FULL, replace(FULL, running=TickRun(5, 6, 7, "a"))])
def test_a_record_comes_back_as_it_was(record: records.ScheduleRecord) -> None:
    back = decode(encode(record), path="/s")
    assert back == record
    assert hash(back) == hash(replace(back, other={}))
    kinds = [type(one.outcome) for one in (back.running, *back.history) if isinstance(one, TickRun)]
    given = (record.running, *record.history)
    assert kinds == [type(one.outcome) for one in given if isinstance(one, TickRun)]
    assert [one.why.sentence for one in back.history if isinstance(one, TickGap)] == [
        "they were older than grace_s" for one in record.history if isinstance(one, TickGap)
    ]


def decode_run(**more: Any) -> TickRun | None:
    written = {"last": 9, "when": {"every_ms": 1}, "running": RAN | more}
    return decode(json.dumps(written).encode(), path="/s").running


def test_a_record_is_brief_and_a_missing_part_of_it_is_as_in_a_new_one() -> None:
    written = json.loads(encode(replace(EMPTY, history=(TickRun(5, 6, 7, "a"),))))
    absent = {"next": None, "running": None, "ran": 0, "restarts": 0}
    assert written == {"last": 9, "when": {"every_ms": 1}, **absent, "history": [RAN]}
    assert decode(b'{"last": 9, "when": {"every_ms": 1}}', path="/s") == EMPTY
    assert decode_run(ended=None, key=None) == TickRun(5, 6, 7, "a", 1, 0)
    for at in (0, 10**14 - 1):
        assert decode_run(at=at) == TickRun(at, 6, 7, "a")
    assert ScheduleWishes() == ScheduleWishes(False, 0, 0)
    many = [TickRun(number, 6, 7, "a") for number in range(records.KEPT + 1)]
    assert decode(encode(replace(EMPTY, history=tuple(many))), path="/s").history == (*many[1:],)
    assert records.KEPT == 100


def test_each_reason_is_a_sentence_of_its_own() -> None:
    assert len({one.sentence for one in PassedOver}) == len(PassedOver)


RAN: dict[str, Any] = {"at": 5, "began": 6, "term": 7, "candidate": "a"}
SPOILT: list[dict[str, Any]] = [
    *({"last": last} for last in ("x", float("inf"), -1)),
    *({"next": at} for at in ([], 10**14)),
    {"ran": -1},
    {"restarts": 10**14},
    {"when": None},
    *({"when": {"every_ms": every_ms}} for every_ms in (0, -1, "1")),
    {"running": {"at": 5}},
    {"running": RAN | {"candidate": 8}},
    {"running": RAN | {"outcome": "over"}},
    {"running": RAN | {"ended": "8"}},
    {"history": [{"first": 1, "last": 4, "count": 2}]},
    {"history": [{"first": 1, "last": 4, "count": 2, "why": "tired"}]},
    {"history": 5},
    {"last": 10**18, "when": {"cron": "5 * * * *"}},
    *({"when": {"cron": cron}} for cron in (5, "", "5", "61 * * * *")),
    {"when": {"cron": "5 * * * *", "tz": "Mars/Base"}},
    *({"running": RAN | {"at": at}} for at in (-1, 10**14)),
    {"history": [{"first": 1, "last": 10**18, "count": 2, "why": "late"}]},
]


@pytest.mark.parametrize("part", SPOILT, ids=json.dumps)
def test_what_cannot_be_a_record_is_told_with_its_place(part: dict[str, Any]) -> None:
    whole = {"last": 9, "when": {"every_ms": 1}}
    with pytest.raises(CorruptRecord, match=r"the znode /s holds .* ticks that were missed"):
        decode(json.dumps({**whole, **part}).encode(), path="/s")
    for data in (b"", b"[]", b"\xff", b"[" * 100_000, json.dumps({"when": whole["when"]}).encode()):
        with pytest.raises(CorruptRecord):
            decode(data, path="/s")


def test_wishes_come_back_and_spoilt_ones_are_told() -> None:
    wishes = {"a": ScheduleWishes(True, 2, 3), "b": ScheduleWishes()}
    assert records.decode_wishes(records.encode_wishes(wishes), path="/w") == wishes
    assert records.decode_wishes(b"", path="/w") == {}
    for value in ({"paused": 1}, {"paused": None}, {"run": "1"}):
        with pytest.raises(CorruptRecord, match="wishes for schedules are lost"):
            records.decode_wishes(json.dumps({"a": value}).encode(), path="/w")
