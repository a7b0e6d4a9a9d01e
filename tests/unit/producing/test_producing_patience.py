"""Back-off and breaker, with the time and the chance given."""

from __future__ import annotations

from leaderq.producing.patience import Breaker, Retry, Standing

RETRY = Retry(first_s=1.0, max_s=10.0, factor=2.0, jitter=0.5, breaker_after=4, breaker_s=60.0)


def test_pauses_grow_up_to_the_longest_and_chance_only_shortens_them() -> None:
    assert [RETRY.pause_s(n, 0.0) for n in (1, 2, 3, 4, 5, 6, 10_000)] == [1, 2, 4, 8, 10, 10, 10]
    assert RETRY.pause_s(3, 1.0) == 2.0


def test_the_breaker_opens_after_so_many_failures_in_a_row() -> None:
    standing = Standing()
    for number in range(3):
        standing = standing.failed(RETRY, now=100.0, chance=lambda: 0.0)
        assert standing.breaker is Breaker.CLOSED
        assert standing.wait_until_s == 100.0 + 2**number
    standing = standing.failed(RETRY, now=100.0, chance=lambda: 0.0)
    assert standing.breaker is Breaker.OPEN
    assert standing.wait_until_s == 160.0


def test_when_its_time_is_over_one_attempt_decides() -> None:
    standing = Standing(4, Breaker.OPEN, 160.0)
    assert standing.at(159.9).breaker is Breaker.OPEN
    half = standing.at(160.0)
    assert half.breaker is Breaker.HALF_OPEN
    assert half.failed(RETRY, now=160.0, chance=lambda: 0.0).breaker is Breaker.OPEN
    assert half.succeeded() == Standing()


def test_a_success_in_between_begins_the_count_anew() -> None:
    standing = Standing()
    for _ in range(20):
        for _ in range(3):
            standing = standing.failed(RETRY, now=0.0, chance=lambda: 0.0)
        assert standing.breaker is Breaker.CLOSED
        standing = standing.succeeded()


def test_a_sink_that_needs_mending_is_left_alone_at_once() -> None:
    assert Standing().failed(RETRY, now=0.0, chance=lambda: 0.0, is_fatal=True).breaker is Breaker.OPEN


def test_every_problem_of_a_policy_is_named() -> None:
    assert Retry().problems() == []
    found = Retry(first_s=-1, jitter=2, factor=0.5, breaker_after=0, max_attempts=0).problems()
    assert [problem.partition("=")[0] for problem in found] == [
        "retry.first_s",
        "retry.jitter",
        "retry.factor",
        "retry.breaker_after",
        "retry.max_attempts",
    ]
