"""Which partitions a leader must be careful with, and which records have killed, from what former
leaders left.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import CorruptRecord
from leaderq.kafka.handling.crash_marks import (
    MAX_KILLERS,
    MAX_POSITIONS,
    CrashCounts,
    RecordPlace,
    assess,
    decode,
    encode,
)
from leaderq.kafka.record import Partition

P, Q = Partition("orders", 0), Partition("orders", 1)
AT = RecordPlace("orders", 0, 41)


@pytest.mark.parametrize(
    ("mark", "committed", "positions", "killers", "careful"),
    [
        pytest.param(
            CrashCounts(),
            {P: 40},
            {P: (40, 1)},
            {},
            set(),
            id="the first death at an offset is only noted",
        ),
        pytest.param(
            CrashCounts({P: (40, 1)}),
            {P: 40},
            {P: (40, 2)},
            {},
            {P},
            id="the second at the same offset asks for care",
        ),
        pytest.param(
            CrashCounts({P: (40, 2)}), {P: 40}, {P: (40, 3)}, {}, {P}, id="and so does the third"
        ),
        pytest.param(
            CrashCounts({P: (40, 1)}),
            {P: 41},
            {P: (41, 1)},
            {},
            set(),
            id="progress begins the count again",
        ),
        pytest.param(
            CrashCounts({P: (40, 1)}),
            {P: 39},
            {P: (39, 1)},
            {},
            set(),
            id="so does an offset set back",
        ),
        pytest.param(
            CrashCounts({P: (40, 1), Q: (7, 1)}),
            {P: 40, Q: 8},
            {P: (40, 2), Q: (8, 1)},
            {},
            {P},
            id="partitions stand by themselves",
        ),
        pytest.param(
            CrashCounts({P: (40, 1)}),
            {Q: 7},
            {Q: (7, 1)},
            {},
            set(),
            id="a partition that is gone is forgotten",
        ),
        pytest.param(
            CrashCounts({P: (40, 2)}, {}, frozenset({AT})),
            {P: 40},
            {P: (40, 3)},
            {AT: 1},
            {P},
            id="a record in hand has killed",
        ),
        pytest.param(
            CrashCounts({P: (40, 2)}, {}, frozenset({AT})),
            {P: 41},
            {P: (41, 1)},
            {AT: 1},
            {P},
            id="also right at the committed offset",
        ),
        pytest.param(
            CrashCounts({P: (40, 2)}, {}, frozenset({AT})),
            {P: 42},
            {P: (42, 1)},
            {},
            set(),
            id="a record passed has not killed",
        ),
        pytest.param(
            CrashCounts({P: (40, 3)}, {AT: 1}, frozenset({AT})),
            {P: 40},
            {P: (40, 4)},
            {AT: 2},
            {P},
            id="its deaths are counted",
        ),
        pytest.param(
            CrashCounts({P: (40, 3)}, {AT: 1}, frozenset({AT._replace(offset=40)})),
            {P: 40},
            {P: (40, 4)},
            {AT: 1, AT._replace(offset=40): 1},
            {P},
            id="a death at another record leaves the first one's alone",
        ),
        pytest.param(
            CrashCounts({P: (40, 3)}, {AT: 2}),
            {P: 42},
            {P: (42, 1)},
            {},
            set(),
            id="a killer passed is forgotten",
        ),
        pytest.param(
            CrashCounts({}, {}, frozenset({AT})),
            {},
            {},
            {AT: 1},
            {P},
            id="without a committed offset it counts as well",
        ),
    ],
)
def test_an_unclean_end_is_judged(mark, committed, positions, killers, careful):
    judged, carefully = assess(mark, committed, unclean=True)
    assert (judged.positions, judged.killers, judged.in_hand, carefully) == (
        positions,
        killers,
        frozenset(),
        careful,
    )


def test_a_clean_end_forgets_all_deaths():
    assert assess(CrashCounts({P: (40, 5)}, {AT: 3}, frozenset({AT})), {P: 40}, unclean=False) == (
        CrashCounts(),
        frozenset(),
    )


def test_taking_a_record_in_hand_replaces_the_one_before_of_its_partition_only():
    other = RecordPlace("orders", 1, 3)
    mark = CrashCounts().handling(AT).handling(other).handling(AT._replace(offset=42))
    assert mark.in_hand == {AT._replace(offset=42), other}


names = st.sampled_from(["a", "b"])
numbers = st.integers(0, 3)
places = st.builds(RecordPlace, names, numbers, st.integers(0, 20))
partitions = st.builds(Partition, names, numbers)
marks = st.builds(
    CrashCounts,
    st.dictionaries(partitions, st.tuples(st.integers(0, 20), st.integers(1, 9))),
    st.dictionaries(places, st.integers(1, 9)),
    st.frozensets(places),
)


@given(mark=marks)
def test_what_is_written_is_read(mark):
    assert decode(encode(mark), path="/x") == mark


@given(mark=marks, committed=st.dictionaries(partitions, st.integers(0, 20)))
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
            mark, careful = assess(mark, {P: committed}, unclean=died > 0)
            if P not in careful:
                died += 1
                continue
            for offset in range(committed, first + culprit + 1):
                place = RecordPlace(P.topic, P.number, offset)
                mark = mark.handling(place)
                committed = offset if is_each_committed else committed
            if mark.killers.get(place, 0) >= deaths:
                break
            died += 1
        assert died == deaths + 2


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b"3",
        b'{"positions": 3}',
        b'{"positions": [3]}',
        b'{"positions": [["a", 0, 1]]}',
        b'{"killers": [[1, 0, 1, 1]]}',
        b'{"in_hand": [["a", 0, "x"]]}',
        b'{"in_hand": [["a", true, 1]]}',
        b"\xff",
    ],
)
def test_what_is_no_mark_is_refused_with_place_and_remedy(data):
    with pytest.raises(CorruptRecord, match=r"the znode /x holds .* delete it"):
        decode(data, path="/x")


def test_fields_of_a_newer_version_are_ignored():
    assert decode(b'{"colour": "red"}', path="/x") == decode(b"", path="/x") == CrashCounts()


def test_what_is_written_stays_far_below_a_megabyte():
    many = {Partition("a" * 20, number): (2**40, 1) for number in range(MAX_POSITIONS + 5)}
    killers = {RecordPlace("a" * 20, 0, 2**40 + number): 1 for number in range(MAX_KILLERS + 5)}
    judged, _ = assess(CrashCounts(many, killers), dict.fromkeys(many, 2**40), unclean=True)
    assert (len(judged.positions), len(judged.killers)) == (MAX_POSITIONS, MAX_KILLERS)
    assert len(encode(judged)) < 700_000
