"""Was each record handled once, and in order? Pure checkers of what careers left behind.

They trust neither leaderq nor the consumer group: they compare what stands in the *results* with
the offsets that were fed. Records are fed without transactions, so the offsets of a partition have
no gaps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple


class Result(NamedTuple):
    """One record's result: where the record stands, and which term handled it."""

    partition: int
    offset: int
    term: int


class Handled(NamedTuple):
    """One record handled by a career whose effects are not undone: ``batch`` counts the batches of
    its term, from 1.
    """

    term: int
    batch: int
    partition: int
    offset: int


def exactly_once(results: Sequence[Result], ends: Mapping[int, int]) -> list[str]:
    """What is wrong with ``results``, which are in the order in which they were stored; empty if
    nothing is.
    """
    counts = Counter((result.partition, result.offset) for result in results)
    fed = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    problems = _told(
        "stored more than once", [place for place, count in counts.items() if count > 1]
    )
    problems += _told("skipped", fed - counts.keys())
    problems += _told("stored, and fed by nobody", counts.keys() - fed)
    for partition, rows in _by_partition(results).items():
        problems += _told(
            f"out of order in partition {partition}",
            [
                (before.offset, after.offset)
                for before, after in pairwise(rows)
                if after.offset <= before.offset
            ],
        )
        problems += _told(
            f"stored in partition {partition} by a term after a newer one",
            [(before, after) for before, after in pairwise(rows) if after.term < before.term],
        )
    return problems


def repeated_at_changes_only(handled: Iterable[Handled], ends: Mapping[int, int]) -> list[str]:
    """What is wrong where effects cannot be undone: nothing skipped; repeated is at most the last
    batch of earlier terms.

    Records of one term are in the order in which they were handled; terms come in any order. All
    batches of a term but its last must have been saved, so a later term may not begin before their
    end; nor after the end of what was handled at all.
    """
    terms: dict[int, list[Handled]] = defaultdict(list)
    for one in handled:
        terms[one.term].append(one)
    problems: list[str] = []
    saved: dict[int, int] = defaultdict(int)
    reached: dict[int, int] = defaultdict(int)
    for term in sorted(terms):
        rows = terms[term]
        for partition, offsets in _offsets(rows).items():
            steps = [(before, after) for before, after in pairwise(offsets) if after != before + 1]
            problems += _told(
                f"not one after the other in term {term}, partition {partition}", steps
            )
            if offsets[0] > reached[partition]:
                problems.append(
                    f"term {term} skipped {reached[partition]} to {offsets[0] - 1} of partition"
                    f" {partition}"
                )
            if offsets[0] < saved[partition]:
                problems.append(
                    f"term {term} began partition {partition} at {offsets[0]}; {saved[partition]}"
                    " was saved"
                )
        last = rows[-1].batch
        for row in rows:
            reached[row.partition] = max(reached[row.partition], row.offset + 1)
            if row.batch != last:
                saved[row.partition] = max(saved[row.partition], row.offset + 1)
    problems += [
        f"partition {partition} was handled up to {reached[partition]}, and fed up to {end}"
        for partition, end in ends.items()
        if reached[partition] != end
    ]
    return problems


def repetitions(handled: Sequence[Handled]) -> int:
    """How many handlings were not the first of their record."""
    return len(handled) - len({(one.partition, one.offset) for one in handled})


def _by_partition(results: Sequence[Result]) -> dict[int, list[Result]]:
    # stable: the order of storing stays
    ordered = sorted(results, key=lambda result: result.partition)
    return {
        partition: list(rows)
        for partition, rows in groupby(ordered, key=lambda result: result.partition)
    }


def _offsets(rows: Sequence[Handled]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        found[row.partition].append(row.offset)
    return found


def _told(what: str, cases: Iterable[object]) -> list[str]:
    found = sorted(cases)  # type: ignore[type-var]
    return [f"{len(found)} {what}: {found[:5]}{'...' if len(found) > 5 else ''}"] if found else []
