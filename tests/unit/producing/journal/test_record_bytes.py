"""Records of a journal as bytes, and what a journal is told and tells, as values."""

from __future__ import annotations

import errno
import struct
from dataclasses import asdict
from math import nan
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError
from leaderq.producing.journal import policy, records
from leaderq.producing.journal.policy import Damage, Every, Interval
from leaderq.producing.journal.records import HEAD_BYTES, Parsed, encode, likely_heads

SALT = records.salt_of(5, 7)
PAYLOADS = st.lists(st.binary(max_size=30), max_size=6)


def written(*payloads: bytes, first_id: int = 5, salt: int = SALT) -> bytes:
    return encode(payloads, first_id=first_id, appended_us=1_500_000, salt=salt)


def read(data: bytes, expected_id: int = 5, limit: int = 1 << 30) -> Parsed:
    return records.parse(data, SALT, expected_id, limit=limit)


@given(PAYLOADS, st.dictionaries(st.integers(0, 5), st.integers(0, 2**40), max_size=3))
def test_records_come_back_as_they_were(payloads, expiries):
    entries = [
        records.expiring(data, expiries[at]) if at in expiries else data
        for at, data in enumerate(payloads)
    ]
    data = encode(entries, first_id=5, appended_us=1_500_000, salt=SALT)
    found = read(data)
    assert (found.used, found.is_bad, found.needs) == (len(data), False, HEAD_BYTES)
    expected = [
        records.JournalRecord(5 + at, payload, 1.5, expiries[at] / 1e6 if at in expiries else None)
        for at, payload in enumerate(payloads)
    ]
    assert [records.record_of(raw) for raw in found.records] == expected
    assert records.size_of(entries) == len(data)
    raws = [(5 + at, 1_500_000, at in expiries, one) for at, one in enumerate(entries)]
    assert [records.record_of(raw) for raw in raws] == expected


def test_the_bytes_of_a_record_are_as_documented():
    rest = struct.pack("<QQI", 5, 1_500_000, 0x51A7C300)
    checksum = crc32(b"ab", crc32(rest, SALT ^ 2))
    assert written(b"ab") == struct.pack("<II", 2, checksum) + rest + b"ab"
    expiring = encode([b"", records.expiring(b"ab", 9)], first_id=5, appended_us=1, salt=SALT)
    assert expiring[HEAD_BYTES + 24 : HEAD_BYTES + 28] == struct.pack("<I", 0x51A7C301)
    assert expiring[-10:] == struct.pack("<Q", 9) + b"ab"
    assert records.salt_of(5, 7) == crc32(struct.pack("<Q", 5), 7)
    assert (records.EXPIRES, HEAD_BYTES) == (1, 28)
    assert (records.WINDOW, records.MAX_RECORD_BYTES) == (1 << 19, 1 << 30)


def test_every_moment_is_one_that_a_record_can_have():
    odd = [1.5, -1e9, nan, float("inf"), 1e15]
    assert [records.microseconds(one) for one in odd] == [1_500_000, 0, 0, 2**63, 2**63]


BAD = Parsed([], 0, True, 0)


def marked(payload: bytes, mark: int) -> bytes:
    rest = struct.pack("<QQI", 5, 1, mark)
    checksum = crc32(payload, crc32(rest, SALT ^ len(payload)))
    return struct.pack("<II", len(payload), checksum) + rest + payload


@pytest.mark.parametrize(
    ("sound", "bad", "limit"),
    [
        (marked(b"x", 0x51A7C300), marked(b"x", 0x11111100), 99),
        (marked(b"12345678", 0x51A7C301), marked(b"1234567", 0x51A7C301), 99),  # its expiry
        (written(b"abc"), written(b"abc", salt=SALT + 1), 99),
        (written(b"abc"), written(b"abcd"), HEAD_BYTES + 3),
    ],
)
def test_what_is_not_marked_or_not_whole_or_not_of_this_segment_is_bad(sound, bad, limit):
    assert read(sound, limit=limit).records
    assert read(bad, limit=limit) == BAD
    assert read(sound + written(b"abc", first_id=6), limit=99).used == len(sound) + HEAD_BYTES + 3


def test_records_follow_each_other_without_a_gap_and_begin_at_the_expected_id_or_later():
    data = written(b"a", b"b")
    assert [raw[0] for raw in read(data, expected_id=4).records] == [5, 6]
    assert read(data, expected_id=6) == BAD
    gap = read(written(b"a") + written(b"c", first_id=7))
    assert (len(gap.records), gap.used, gap.is_bad, gap.needs) == (1, HEAD_BYTES + 1, True, 0)


def no_record(kind: str, payload: bytes, next_id: int) -> bytes:
    """What has the looks of a record, or not even these, where this one would come next."""
    if kind in ("noise", "zeros", "cut"):
        return {
            "noise": payload,
            "zeros": bytes(3 * len(payload)),
            # So many that what comes next never completes it, as one byte may.
            "cut": written(payload + b"the rest", first_id=next_id)[:-8],
        }[kind]
    if kind == "beyond":
        return b"\xff" + written(payload, first_id=1 << 40)
    if kind in ("old", "foreign"):  # it stood there before, or in another segment
        is_old = kind == "old"
        return written(payload, first_id=next_id - is_old, salt=SALT + 1 - is_old)
    one = bytearray(written(payload, first_id=next_id))
    if kind == "spoilt":
        one[len(one) // 2] ^= 1
    else:
        struct.pack_into("<I", one, 0, {"long": 1 << 20, "impossible": 1 << 31}[kind])
    return bytes(one)


KINDS = ["record", "later", "noise", "zeros", "cut", "beyond"]
KINDS += ["old", "foreign", "spoilt", "long", "impossible"]


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.binary(max_size=70)), max_size=5),
    st.sampled_from([1 << 19, HEAD_BYTES, 40, 64]),
    st.integers(0, 40),
)
def test_all_that_is_whole_is_found_and_the_gaps_between_are_told(pieces, window, start):
    """From the ``start`` of a range to its end, which may be within a record."""
    data, whole, gaps = bytes(start), list[tuple[int, bytes]](), list[Damage]()
    next_id, sound_to = 5, start
    for kind, payload in pieces:
        if kind not in ("record", "later"):
            data += no_record(kind, payload, next_id)
            continue
        number = next_id + (3 if kind == "later" else 0)
        if len(data) > sound_to or number > next_id:
            lost = (next_id, number - 1) if number > next_id else None
            gaps.append(Damage("f", "spoilt", sound_to, len(data) - sound_to, lost))
        data += written(payload, first_id=number)
        whole.append((number, payload))
        next_id, sound_to = number + 1, len(data)
    asked: list[int] = []

    def read(size: int, offset: int) -> bytes:
        assert size > 0
        assert start <= offset <= len(data) - size
        asked.append(size)
        return (data + written(b"beyond the end", first_id=next_id))[offset : offset + size]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "WINDOW", window)
        span: Any = {"start": start, "end": len(data), "next_id": 5}
        found = list(records.scan(read, file="f", salt=SALT, **span))
    assert [one for one in found if isinstance(one, Damage)] == gaps
    assert len(asked) < 600, "each byte is read a few times at most"
    at = start
    for one in found:
        if isinstance(one, Damage):
            at = one.offset + one.size
            continue
        at += sum(HEAD_BYTES + len(raw[3]) for raw in one.records)
        assert one.end == at
        assert (one.first_id, one.last_id) == (one.records[0][0], one.records[-1][0])
        assert [(raw[0], raw[3]) for raw in one.records] == whole[: len(one.records)]
        del whole[: len(one.records)]
    assert not whole
    assert at == sound_to


def test_what_the_disk_cannot_return_is_zeros_and_any_other_error_is_raised():
    def failing(size: int, offset: int) -> bytes:
        raise OSError(offset, "cannot be read")

    assert records.tolerant(failing)(3, errno.EIO) == bytes(3)
    with pytest.raises(OSError, match="cannot be read"):
        records.tolerant(failing)(3, errno.ENOSPC)


def test_heads_are_found_by_mark_and_id():
    data, step = written(b"a", b"b", b"c"), HEAD_BYTES + 1
    assert likely_heads(data, range(6, 8)) == [step, 2 * step]
    assert likely_heads(data[1:], range(100)) == [step - 1, 2 * step - 1]
    assert likely_heads(data, range(6, 7)) == [step]
    mark = records._MARK_BYTES
    assert likely_heads(mark + data, range(5, 6)) == [len(mark)]


@pytest.mark.parametrize(
    ("make", "value", "problem"),
    [(Every, 0, "Every.items=0"), *((Interval, s, "more than 0 s") for s in (0, nan, True))],
)
def test_a_policy_that_cannot_be_kept_is_refused(make, value, problem):
    with pytest.raises(ConfigurationError, match=problem) as refused:
        make(value)
    assert len(refused.value.problems) == 1


def test_what_a_journal_tells_begins_with_nothing():
    assert (policy.EVERY_ITEM, Every(2).items, Interval(0.1).seconds) == (Every(1), 2, 0.1)
    report = asdict(policy.RecoveryReport())
    assert report.pop("was_clean")
    assert not any([*report.values(), *asdict(policy.JournalCounters()).values()])
    assert Damage("f", "spoilt") == Damage("f", "spoilt", 0, 0, None)
    lost = [Damage("f", "spoilt", lost_ids=ids).lost for ids in (None, (5, 5), (5, 9))]
    assert lost == [0, 1, 5]


@given(PAYLOADS.filter(bool), st.data())
def test_what_ends_early_says_how_much_it_needs(payloads, data):
    whole = written(*payloads)
    at = data.draw(st.integers(0, len(whole) - 1))
    found = read(whole[:at])
    full = [len(written(*payloads[:count])) for count in range(len(payloads) + 1)]
    count = max(number for number, size in enumerate(full) if size <= at)
    assert (len(found.records), found.used, found.is_bad) == (count, full[count], False)
    is_head_whole = at - full[count] >= HEAD_BYTES
    assert found.needs == (full[count + 1] - full[count] if is_head_whole else HEAD_BYTES)
