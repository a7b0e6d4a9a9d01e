"""What doctor says of a career's topics, given what the cluster says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leaderq.cli.doctor import Verdict, judge_dead_letters, judge_topic
from leaderq.kafka.topics import TopicView

FINE = TopicView(6, 0, 3, 3, 2, frozenset({"READ", "WRITE", "DESCRIBE"}))
MISSING = TopicView(0, 0, 0, 0, None, frozenset({"READ", "DESCRIBE"}))


@pytest.mark.parametrize(
    ("view", "verdict", "said"),
    [
        (FINE, Verdict.OK, "6 partitions, 3 of 3 replicas in sync"),
        (replace(FINE, operations=None), Verdict.OK, "6 partitions"),
        (MISSING, Verdict.FAILED, "create it: leaderq topics create clicks"),
        (
            replace(MISSING, operations=frozenset()),
            Verdict.FAILED,
            "may not see it, or it is not there",
        ),
        (
            replace(FINE, operations=frozenset({"DESCRIBE"})),
            Verdict.FAILED,
            "needs the operation READ",
        ),
        (replace(FINE, leaderless=2), Verdict.FAILED, "2 of 6 partitions have no leader"),
        (replace(FINE, in_sync=2), Verdict.ADVICE, "2 of 3 replicas in sync; is a broker down?"),
        (replace(FINE, replicas=1, in_sync=1), Verdict.ADVICE, "lost with the disk of one broker"),
    ],
)
def test_a_topic_is_fit_to_be_read_or_what_to_do_is_said(
    view: TopicView, verdict: Verdict, said: str
) -> None:
    found = judge_topic("clicks", view)
    assert (found.check, found.verdict) == ("topic clicks", verdict)
    assert said in found.detail


@pytest.mark.parametrize(
    ("view", "verdict", "said"),
    [
        (FINE, Verdict.OK, "6 partitions"),
        (
            replace(MISSING, operations=frozenset({"CREATE", "WRITE"})),
            Verdict.OK,
            "made when the career is run",
        ),
        (
            replace(MISSING, operations=frozenset({"WRITE"})),
            Verdict.FAILED,
            "may not create it: leaderq topics create dead",
        ),
        (
            replace(MISSING, operations=frozenset({"CREATE"})),
            Verdict.FAILED,
            "needs WRITE, and CREATE if it is missing",
        ),
        (replace(FINE, operations=frozenset({"READ", "DESCRIBE"})), Verdict.FAILED, "needs WRITE"),
        (
            replace(FINE, in_sync=1),
            Verdict.FAILED,
            "1 replicas are in sync, and min.insync.replicas is 2",
        ),
    ],
)
def test_a_dead_letter_topic_takes_letters_or_what_to_do_is_said(
    view: TopicView, verdict: Verdict, said: str
) -> None:
    found = judge_dead_letters("dead", view)
    assert found.verdict is verdict
    assert said in found.detail
