"""What a journal is told and what it tells, as values."""

from __future__ import annotations

import pytest

from leaderq.errors import ConfigurationError
from leaderq.producing.journal import policy
from leaderq.producing.journal.policy import (
    EVERY_ITEM,
    Damage,
    Every,
    Interval,
    JournalCounters,
    RecoveryReport,
    allotment,
    fitting_segment_bytes,
)

MB = 1 << 20


def test_a_journal_is_synced_every_item_or_more_rarely() -> None:
    assert (EVERY_ITEM, Every(2).items, Interval(0.1).seconds) == (Every(1), 2, 0.1)
    for items in (0, -1):
        with pytest.raises(ConfigurationError, match=rf"Every.items={items}: "):
            Every(items)
    for seconds in (0, -1.0, float("nan")):
        with pytest.raises(ConfigurationError, match="more than 0 s"):
            Interval(seconds)


def test_four_segments_fit_under_a_cap() -> None:
    assert (policy.SEGMENT_BYTES, policy.LEAST_SEGMENT_BYTES) == (32 * MB, 4096)
    assert policy.SEGMENTS_IN_CAP == 4
    assert fitting_segment_bytes(32 * MB, None, 0) == 32 * MB
    assert fitting_segment_bytes(32 * MB, 100 * MB, 0) == 25 * MB
    assert fitting_segment_bytes(4096, 100 * MB, 5) == 4096
    assert fitting_segment_bytes(1 << 30, 16384, 0) == 4096


@pytest.mark.parametrize(
    ("wanted", "max_bytes", "reserve", "problems"),
    [
        (4095, None, 0, ["segment_bytes=4095"]),
        ((1 << 30) + 1, None, 0, ["segment_bytes=1073741825"]),
        (4096, 16383, 0, ["max_bytes=16383"]),
        (4096, None, -1, ["reserve_bytes=-1"]),
        (1, 1, -1, ["segment_bytes=1", "max_bytes=1", "reserve_bytes=-1"]),
    ],
)
def test_sizes_that_cannot_be_are_refused_all_at_once(
    wanted: int, max_bytes: int | None, reserve: int, problems: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        fitting_segment_bytes(wanted, max_bytes, reserve)
    assert len(refused.value.problems) == len(problems)
    assert all(each in str(refused.value) for each in problems)


@pytest.mark.parametrize(
    ("size", "is_durable", "allotted"),
    [(8 * MB, True, MB), (8 * MB - 1, True, 0), (32 * MB, False, 0), (32 * MB, True, MB)],
)
def test_only_large_segments_that_are_synced_are_allotted_ahead(
    size: int, is_durable: bool, allotted: int
) -> None:
    assert allotment(size, is_durable=is_durable) == allotted


def test_lost_records_are_counted_by_their_first_and_last_id() -> None:
    assert Damage("f", "r").lost == 0
    assert Damage("f", "r", lost_ids=(5, 5)).lost == 1
    assert Damage("f", "r", lost_ids=(5, 9)).lost == 5
    assert Damage("f", "r") == Damage("f", "r", 0, 0, None)


def test_a_new_journal_has_found_and_counted_nothing() -> None:
    assert RecoveryReport() == RecoveryReport(0, 0, 0, True, 0, False, 0, (), 0, 0.0)
    counters = JournalCounters()
    histogram = counters.__dict__.pop("fsyncs_by_log2_us")
    assert histogram == [0] * 40
    assert set(counters.__dict__.values()) == {0}


def test_the_time_of_a_sync_is_known_to_a_factor_of_two() -> None:
    counters = JournalCounters()
    assert [counters.fsync_quantile_s(share) for share in (0.0, 0.5, 1.0)] == [0.0, 0.0, 0.0]
    counters.fsyncs = 4
    counters.fsyncs_by_log2_us[10:13] = [2, 1, 1]
    quantiles = [counters.fsync_quantile_s(share) for share in (0.25, 0.5, 0.75, 0.9, 1.0)]
    assert quantiles == [1024e-6, 1024e-6, 2048e-6, 4096e-6, 4096e-6]
    assert counters.fsync_quantile_s(0.5000001) == 2048e-6
    counters.fsyncs = 5  # one that no count holds
    assert counters.fsync_quantile_s(1.0) == 0.0
