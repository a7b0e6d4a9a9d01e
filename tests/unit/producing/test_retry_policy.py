"""The pauses between attempts, with the chance given."""

from __future__ import annotations

from leaderq.producing import ProducerRetry


def test_pauses_grow_up_to_the_longest_and_chance_only_shortens_them() -> None:
    backoff = ProducerRetry(first_s=1.0, max_s=10.0, factor=2.0, jitter=0.5).backoff
    pauses = [backoff.delay_s(n, 0.0) for n in (1, 2, 3, 4, 5, 6, 10_000)]
    assert pauses == [1, 2, 4, 8, 10, 10, 10]
    assert backoff.delay_s(3, 1.0) == 2.0


def test_every_problem_of_a_policy_is_named() -> None:
    assert ProducerRetry().problems() == []
    found = ProducerRetry(first_s=-1, jitter=2, factor=0.5, max_attempts=0).problems()
    assert [problem.partition("=")[0] for problem in found] == [
        "retry.first_s",
        "retry.jitter",
        "retry.factor",
        "retry.max_attempts",
    ]
