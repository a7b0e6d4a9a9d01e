"""The marks of one career, with a session and a term that the test answers for."""

from __future__ import annotations

from typing import Any

import pytest
from fake_career import A, B, records
from few_znodes import FewZnodes
from hypothesis import given
from hypothesis import strategies as st

from leaderq import errors
from leaderq.base import clock
from leaderq.kafka.handling.crash_marks import (
    CrashCounts,
    CrashMarks,
    RecordPlace,
    assess,
    decode,
    encode,
)
from leaderq.kafka.record import Partition
from leaderq.term import OpenTerm
from leaderq.zookeeper import Create, SetData

PATH = "/c/attempts"


def place(offset: int, where: Partition = A) -> RecordPlace:
    return RecordPlace(where.topic, where.number, offset)


def after_unclean(servers: FewZnodes, number: int = 7) -> OpenTerm:
    return servers.term(number, unclean=True)


def noted(servers: FewZnodes) -> CrashCounts:
    return decode(servers.data[PATH], path=PATH)


def marks(servers: FewZnodes, most: int = 3) -> Any:
    return CrashMarks(servers, PATH, max_records=most)


def test_after_a_first_unclean_end_the_offsets_are_noted_and_nothing_is_careful(servers):
    kept, term = marks(servers), after_unclean(servers)
    kept.begin(term, {A: 5})
    assert noted(servers) == CrashCounts({A: (5, 1)})
    assert not kept.is_careful(A)
    kept.begin(term, {A: 6})
    assert servers.gets == 1
    kept.begin(after_unclean(servers, 8), {A: 5})
    assert [type(one) for (one,) in servers.writes] == [SetData, Create, SetData]
    assert (kept.is_careful(A), kept.is_careful(B)) == (True, False)


def test_a_clean_end_forgets_all_and_writes_only_if_there_was_something():
    clean, marked = FewZnodes(), FewZnodes({PATH: encode(CrashCounts({A: (5, 9)}))})
    marks(clean).begin(clean.term(), {A: 5})
    assert (clean.gets, clean.writes) == (1, [])
    kept = marks(marked)
    kept.begin(marked.term(), {A: 5})
    assert (marked.data[PATH], kept.is_careful(A)) == (b"", False)


def test_marks_that_cannot_be_read_are_logged_and_begun_again(servers, caplog):
    servers.data[PATH] = b"{"
    marks(servers).begin(after_unclean(servers), {A: 5})
    assert "deaths of former leaders not counted" in caplog.text
    assert noted(servers) == CrashCounts({A: (5, 1)})


def careful(servers: FewZnodes, most: int = 3) -> tuple[Any, OpenTerm]:
    servers.data[PATH] = encode(CrashCounts({A: (5, 1), B: (0, 0)}, {place(6): 2}))
    kept, term = marks(servers, most), after_unclean(servers)
    kept.begin(term, {A: 5, B: 3})
    return kept, term


def test_a_record_is_marked_before_it_is_handled_and_its_deaths_are_told(servers):
    kept, term = careful(servers)
    assert kept.before(term, *records(A, 5)) == 0
    assert noted(servers).in_hand == {place(5)}
    assert kept.before(term, *records(A, 6)) == 2
    assert kept.before(term, *records(B, 9)) == 0
    assert noted(servers).in_hand == {place(6), place(9, B)}


def test_a_mark_that_could_not_be_written_is_not_remembered(servers):
    kept, term = careful(servers)
    servers.errors = [(errors.SessionExpired("x"), False)]
    with pytest.raises(errors.Deposed):
        kept.before(term, *records(A, 5))
    assert kept.before(term, *records(B, 9)) == 0
    assert noted(servers).in_hand == {place(9, B)}


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_partition_is_careful_for_as_many_records_as_the_largest_batch(most, caplog):
    caplog.set_level("INFO")
    kept, term = careful(FewZnodes(), most)
    assert "processes died over records" in caplog.text
    for offset in range(most):
        assert kept.is_careful(A)
        assert "past the records" not in caplog.text
        kept.after(term, *records(A, offset))
    assert not kept.is_careful(A)
    assert "past the records over which processes died partition=t-0" in caplog.text
    kept.after(term, *records(A, 9))
    assert not kept.is_careful(A)


@pytest.mark.parametrize("error", [errors.ConnectionLost, errors.NodeExists, errors.BadVersion])
def test_while_the_connection_breaks_it_is_asked_again_until_the_lease_ends(
    servers, error, monkeypatch
):
    slept: list[float] = []
    monkeypatch.setattr(clock, "sleep", slept.append)
    kept, term = marks(servers), after_unclean(servers)
    servers.get_errors = [error("x"), error("x")]
    kept.begin(term, {A: 5})
    assert (slept, servers.gets) == ([0.05, 0.05], 3)
    assert noted(servers) == CrashCounts({A: (5, 1)})


def test_with_the_session_leadership_is_over_and_a_term_that_is_over_asks_nothing(servers):
    for error in (errors.SessionExpired("x"), errors.SessionClosed("x")):
        servers.get_errors = [error]
        with pytest.raises(errors.Deposed) as deposed:
            marks(servers).begin(servers.term(), {})
        assert (deposed.value.term, deposed.value.reason) == (7, errors.Reason.SESSION)
    over = servers.term()
    over.wind_up(errors.Reason.LEASE)
    over.close()
    with pytest.raises(errors.Deposed):
        marks(servers).begin(over, {})
    assert servers.gets == 2


def test_where_a_record_has_killed_its_partition_is_careful_though_the_offset_moved():
    known = CrashCounts({A: (5, 1)}, {place(8): 1})
    assert assess(known, {A: 7}, True)[1] == {A}
    assert assess(known, {A: 9}, True) == (CrashCounts({A: (9, 1)}), frozenset())


def test_of_too_many_the_deadliest_are_kept(monkeypatch):
    monkeypatch.setattr("leaderq.kafka.handling.crash_marks.MAX_POSITIONS", 2)
    monkeypatch.setattr("leaderq.kafka.handling.crash_marks.MAX_KILLERS", 2)
    parts = [Partition("t", number) for number in range(4)]
    deaths = dict(zip(parts, (1, 5, 3, 3), strict=True))
    killers = {place(100, where): count for where, count in deaths.items()}
    known = CrashCounts({where: (9, count) for where, count in deaths.items()}, killers)
    counts, careful_in = assess(known, dict.fromkeys(parts, 9), True)
    assert list(counts.positions) == [parts[1], parts[2]]
    assert list(counts.killers) == [place(100, parts[1]), place(100, parts[2])]
    assert careful_in == set(parts)


def test_marks_of_many_partitions_with_long_names_fit_into_a_znode():
    parts = [Partition("t" * 249, number) for number in range(10_000)]
    known = CrashCounts({}, {place(100, where): 1 for where in parts})
    counts, _ = assess(known, dict.fromkeys(parts, 10**9), True)
    assert 300_000 < len(encode(counts)) < 1_000_000


NO_MARKS = b"""
    { [] 5 \xff {"positions":5} {"positions":[["t",0,1]]} {"positions":[["t",0,1,"x"]]}
    {"killers":[[0,0,1,1]]} {"in_hand":[["t",0]]} {"in_hand":[["t",0,1,1]]}
"""


@pytest.mark.parametrize("data", [*NO_MARKS.split(), b"[" * 100_000])
def test_what_is_no_mark_is_corrupt(data):
    with pytest.raises(errors.CorruptRecord, match=PATH):
        decode(data, path=PATH)


def test_marks_come_back_as_they_were():
    counts = CrashCounts({A: (5, 1), B: (6, 2)}, {place(7): 3}, frozenset({place(8), place(9, B)}))
    assert decode(encode(counts), path=PATH) == counts
    assert decode(b"", path=PATH) == decode(b"{}", path=PATH) == CrashCounts()
    assert counts.handling(place(10)).in_hand == {place(10), place(9, B)}


names = st.sampled_from(["a", "b"])
numbers = st.integers(0, 3)
places = st.builds(RecordPlace, names, numbers, st.integers(0, 20))
partitions = st.builds(Partition, names, numbers)
many_counts = st.builds(
    CrashCounts,
    st.dictionaries(partitions, st.tuples(st.integers(0, 20), st.integers(1, 9))),
    st.dictionaries(places, st.integers(1, 9)),
    st.frozensets(places),
)


@given(mark=many_counts, committed=st.dictionaries(partitions, st.integers(0, 20)))
def test_a_death_is_never_lost_nor_made_up(mark, committed):
    judged, careful = assess(mark, committed, unclean=True)
    for place, deaths in judged.killers.items():
        assert place.offset >= committed.get(place.partition, 0)
        assert deaths == mark.killers.get(place, 0) + (place in mark.in_hand)
        assert place.partition in careful
    for place in {*mark.killers, *mark.in_hand} - judged.killers.keys():
        assert place.offset < committed[place.partition]
    assert judged.positions.keys() == committed.keys()


@given(
    first=st.integers(0, 30),
    length=st.integers(1, 8),
    culprit=st.integers(0, 7),
    deaths=st.integers(1, 4),
)
def test_a_record_that_kills_is_found_after_two_deaths_more_than_the_limit(
    first, length, culprit, deaths
):
    """A batch is handled at once until care is asked for; then one by one, each committed or, at
    worst, none.
    """
    culprit = min(culprit, length - 1)
    for is_each_committed in (True, False):
        mark, committed, died = CrashCounts(), first, 0
        while True:
            mark, careful = assess(mark, {A: committed}, unclean=died > 0)
            if A not in careful:
                died += 1
                continue
            for offset in range(committed, first + culprit + 1):
                place = RecordPlace(A.topic, A.number, offset)
                mark = mark.handling(place)
                committed = offset if is_each_committed else committed
            if mark.killers.get(place, 0) >= deaths:
                break
            died += 1
        assert died == deaths + 2


def test_what_is_written_stays_far_below_a_megabyte():
    many = {Partition("a" * 20, number): (2**40, 1) for number in range(10_005)}
    killers = {RecordPlace("a" * 20, 0, 2**40 + number): 1 for number in range(1_005)}
    judged, _ = assess(CrashCounts(many, killers), dict.fromkeys(many, 2**40), unclean=True)
    assert (len(judged.positions), len(judged.killers)) == (10_000, 1_000)
    assert len(encode(judged)) < 700_000
