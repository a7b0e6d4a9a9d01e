"""What doctor says of a career's topics, given what the cluster says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leaderq.kafka.career_check import Severity, judge_dead_letters, judge_topic
from leaderq.kafka.topics import TopicView

FINE = TopicView(6, 0, 3, 3, 2, frozenset({"READ", "WRITE", "DESCRIBE"}))
MISSING = TopicView(0, 0, 0, 0, None, frozenset({"READ", "DESCRIBE"}))


@pytest.mark.parametrize(
    ("view", "severity", "said"),
    [
        (FINE, Severity.FINE, "6 partitions, 3 of 3 replicas in sync"),
        (replace(FINE, operations=None), Severity.FINE, "6 partitions"),
        (MISSING, Severity.FATAL, "create it: leaderq topics create clicks"),
        (
            replace(MISSING, operations=frozenset()),
            Severity.FATAL,
            "may not see it, or it is not there",
        ),
        (
            replace(FINE, operations=frozenset({"DESCRIBE"})),
            Severity.FATAL,
            "needs the operation READ",
        ),
        (replace(FINE, leaderless=2), Severity.FATAL, "2 of 6 partitions have no leader"),
        (replace(FINE, in_sync=2), Severity.ADVICE, "2 of 3 replicas in sync; is a broker down?"),
        (replace(FINE, replicas=1, in_sync=1), Severity.ADVICE, "lost with the disk of one broker"),
    ],
)
def test_a_topic_is_fit_to_be_read_or_what_to_do_is_said(
    view: TopicView, severity: Severity, said: str
) -> None:
    found = judge_topic("clicks", view)
    assert (found.what, found.severity) == ("topic clicks", severity)
    assert said in found.sentence


@pytest.mark.parametrize(
    ("view", "severity", "said"),
    [
        (FINE, Severity.FINE, "6 partitions"),
        (
            replace(MISSING, operations=frozenset({"CREATE", "WRITE"})),
            Severity.FINE,
            "made when the career is run",
        ),
        (
            replace(MISSING, operations=frozenset({"WRITE"})),
            Severity.FATAL,
            "may not create it: leaderq topics create dead",
        ),
        (
            replace(MISSING, operations=frozenset({"CREATE"})),
            Severity.FATAL,
            "needs WRITE, and CREATE if it is missing",
        ),
        (replace(FINE, operations=frozenset({"READ", "DESCRIBE"})), Severity.FATAL, "needs WRITE"),
        (
            replace(FINE, in_sync=1),
            Severity.FATAL,
            "1 replicas are in sync, and min.insync.replicas is 2",
        ),
    ],
)
def test_a_dead_letter_topic_takes_letters_or_what_to_do_is_said(
    view: TopicView, severity: Severity, said: str
) -> None:
    found = judge_dead_letters("dead", view)
    assert found.severity is severity
    assert said in found.sentence
