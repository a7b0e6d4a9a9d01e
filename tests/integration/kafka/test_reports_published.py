"""Reports as leaders write them: fenced, on a real ZooKeeper, and never at the expense of the
term.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from leaderq import Candidate, Session, connect
from leaderq.election.layout import Layout
from leaderq.events import EventBus
from leaderq.kafka.consuming.report import DrainReport, PartitionLag, ProgressReports, decode
from leaderq.term import Reason, Term


@pytest.fixture
def place(znode_root: str) -> Layout:
    return Layout(znode_root, "c")


@pytest.fixture
def stand(
    zookeeper_server: Any, place: Layout
) -> Iterator[Callable[[str], tuple[Candidate, Session]]]:
    """Put up a candidate with a session of its own."""
    with ExitStack() as made:

        def begin(name: str) -> tuple[Candidate, Session]:
            session = made.enter_context(connect(zookeeper_server.address, timeout_s=30.0))
            candidate = made.enter_context(
                Candidate(session, "c", id=name, root=place.root, events=EventBus())
            )
            candidate.stand()
            return candidate, session

        yield begin


def won(candidate: Candidate) -> Term:
    term = candidate.await_term(30.0)
    assert term is not None
    return term


def report(term: Term, lag: int) -> DrainReport:
    return DrainReport(
        term=term.number, at=5.0, group="g", partitions={"t-0": PartitionLag(0, lag, lag)}
    )


def reports_at(path: str, session: Session) -> ProgressReports:
    return ProgressReports(
        session, EventBus(), path, career="c", candidate="a", group="g", dead_letters=None
    )


def is_written(reports: ProgressReports, within_s: float) -> bool:
    return reports._writing is not None and reports._writing.done(within_s)


def published(reports: ProgressReports, term: Term, lag: int) -> None:
    reports.publish(term, report(term, lag))
    assert is_written(reports, 30)


def test_the_first_report_makes_its_znode_and_the_next_replaces_it(
    stand: Any, place: Layout
) -> None:
    candidate, session = stand("a")
    term, reporter = won(candidate), reports_at(place.progress, session)
    for lag in (10, 4):
        published(reporter, term, lag)
        assert decode(session.get(place.progress)[0], path=place.progress) == report(term, lag)


def test_a_deposed_leaders_report_does_not_replace_its_successors(
    stand: Any, place: Layout, caplog: Any
) -> None:
    a, session = stand("a")
    first, reporter = won(a), reports_at(place.progress, session)
    b, _ = stand("b")
    published(reporter, first, 10)
    assert a.conclude(first, Reason.WITHDRAWN, timeout_s=30)
    second = won(b)
    published(reports_at(place.progress, session), second, 3)
    with caplog.at_level(logging.WARNING):
        published(reporter, first, 99)
    assert decode(session.get(place.progress)[0], path=place.progress) == report(second, 3)
    assert [
        record
        for record in caplog.records
        if record.name.startswith("leaderq.kafka.consuming.report")
    ] == []
    second.check()
