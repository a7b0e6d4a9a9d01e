"""What a replay remembers of a partition, and that it fits beside a committed offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import CorruptRecord
from leaderq.kafka.dead_letters.replay import MAX_NOTE, ReplayProgress, ReplayScan, progress_noted


@given(upto=st.integers(0, 2**40), ahead=st.frozensets(st.integers(0, 5000), max_size=200))
def test_what_is_noted_is_read(upto, ahead):
    done = ReplayProgress(upto, frozenset(upto + each for each in ahead))
    note = done.note()
    assert note is not None
    assert len(note) <= MAX_NOTE
    assert progress_noted(upto, note) == done


def test_the_note_can_be_read_by_a_person():
    assert ReplayProgress(10, frozenset({12, 13, 14, 18})).note() == "also replayed: 12-14,18"
    assert ReplayProgress(10).note() == ""


def test_what_does_not_fit_is_not_noted():
    assert ReplayProgress(7, frozenset(range(8, 1000, 2))).note() is not None
    assert ReplayProgress(7, frozenset(range(8, 10_000, 2))).note() is None


@pytest.mark.parametrize("note", ["", "leaderq term 3", "by hand", "replayed 2-4,8"])
def test_an_offset_set_by_somebody_else_says_from_here_on(note):
    assert progress_noted(5, note) == ReplayProgress(5)


@pytest.mark.parametrize(
    "note", [f"also replayed: {each}" for each in ("x", "1-", "", "0-99999999999")]
)
def test_a_note_gone_bad_is_refused_with_a_remedy(note):
    with pytest.raises(CorruptRecord, match="--from-start"):
        progress_noted(5, note)


@given(
    count=st.integers(0, 30),
    chosen=st.lists(st.frozensets(st.integers(0, 29)), max_size=5),
    stops=st.lists(st.integers(0, 30), min_size=5, max_size=5),
)
def test_whatever_is_chosen_in_which_order_and_interrupted_where_each_letter_is_replayed_once(
    count, chosen, stops
):
    sent: list[int] = []
    done = ReplayProgress(0)
    wanted: set[int] = set()
    for selection, stop in [*zip(chosen, stops, strict=False), (frozenset(range(30)), 30)]:
        passage = ReplayScan(done)
        for offset in range(done.upto, min(count, stop)):
            if offset in done:
                passage.passed(offset)
            elif offset in selection:
                sent.append(offset)
                passage.passed(offset)
            else:
                passage.left(offset)
            wanted |= {offset}
        if stop >= count:
            passage.ended(count)
        note = passage.now().note()
        assert note is not None
        done = progress_noted(passage.now().upto, note)
    assert sorted(sent) == list(range(count))
    assert done == ReplayProgress(count)
