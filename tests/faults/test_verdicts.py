"""The checkers find what they are there to find."""

from __future__ import annotations

import pytest
from verdicts import Handled, Result, exactly_once, repeated_at_changes_only, repetitions, skipped

GOOD = [Result(0, 0, 1), Result(1, 0, 1), Result(0, 1, 1), Result(0, 2, 3), Result(1, 1, 3)]
ENDS = {0: 3, 1: 2}


def test_each_once_and_in_order_is_right() -> None:
    assert exactly_once(GOOD, ENDS) == []


@pytest.mark.parametrize(
    ("results", "named"),
    [
        ([*GOOD, Result(0, 2, 3)], "1 stored more than once: [(0, 2)]"),
        (GOOD[:-1], "1 skipped: [(1, 1)]"),
        ([*GOOD, Result(0, 3, 3)], "1 stored, and fed by nobody: [(0, 3)]"),
        ([GOOD[2], *GOOD[:2], *GOOD[3:]], "1 out of order in partition 0: [(1, 0)]"),
        (
            [*GOOD[:3], Result(0, 2, 0), GOOD[4]],
            "1 stored in partition 0 by a term after a newer one",
        ),
    ],
)
def test_what_is_wrong_is_named(results: list[Result], named: str) -> None:
    assert any(problem.startswith(named) for problem in exactly_once(results, ENDS)), exactly_once(
        results, ENDS
    )


def handled(term: int, *batches: list[tuple[int, int]]) -> list[Handled]:
    return [
        Handled(term, number, *place) for number, batch in enumerate(batches, 1) for place in batch
    ]


FIRST = handled(1, [(0, 0), (0, 1)], [(0, 2), (1, 0)])


def test_the_last_batch_may_be_repeated_by_the_next_terms_until_one_saves_it() -> None:
    repeated = [*FIRST, *handled(2, [(0, 2)]), *handled(3, [(0, 2), (1, 0)], [(1, 1)])]
    assert repeated_at_changes_only(repeated, {0: 3, 1: 2}) == []
    assert repetitions(repeated) == 3


@pytest.mark.parametrize(
    ("later", "ends", "named"),
    [
        (handled(2, [(0, 4)]), {0: 5, 1: 1}, "term 2 skipped 3 to 3 of partition 0"),
        (handled(2, [(0, 1), (0, 2)]), {0: 3, 1: 1}, "term 2 began partition 0 at 1; 2 was saved"),
        (
            handled(2, [(0, 3)], [(0, 3)]),
            {0: 4, 1: 1},
            "1 not one after the other in term 2, partition 0: [(3, 3)]",
        ),
        (
            handled(2, [(0, 3), (0, 5)]),
            {0: 6, 1: 1},
            "1 not one after the other in term 2, partition 0: [(3, 5)]",
        ),
        (handled(2, [(0, 3)]), {0: 9, 1: 1}, "partition 0 was handled up to 4, and fed up to 9"),
    ],
)
def test_every_other_repetition_and_every_gap_is_named(
    later: list[Handled], ends: dict[int, int], named: str
) -> None:
    assert repeated_at_changes_only([*FIRST, *later], ends) == [named]


def test_where_partitions_come_and_go_a_term_may_go_back_but_skip_nothing() -> None:
    again = [*FIRST, *handled(1, [(0, 1), (0, 2), (0, 3)])]
    assert skipped(again, {0: 4, 1: 1}) == []
    assert skipped([*again, *handled(2, [(0, 5)])], {0: 6, 1: 1}) == ["term 2 skipped 4 to 4 of 0"]
    assert skipped(again, {0: 5, 1: 1}) == ["partition 0 was handled up to 4, and fed up to 5"]
