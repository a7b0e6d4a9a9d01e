from __future__ import annotations

import pytest

from leaderq.errors import ConfigurationError
from leaderq.testing.waiting import eventually, patience


def test_the_first_true_value_is_given_back() -> None:
    answers = iter([0, "", None, "there"])
    assert eventually(lambda: next(answers), interval_s=0) == "there"


def test_an_exception_counts_as_not_yet() -> None:
    answers = iter([lambda: 1 / 0, lambda: 7])
    assert eventually(lambda: next(answers)(), interval_s=0) == 7


def test_time_over_names_the_message_and_the_last_value() -> None:
    with pytest.raises(
        AssertionError, match=r"the queue is empty: not true within .* its last value was \[3\]"
    ):
        eventually(lambda: _falsy([3]), timeout_s=0, message="the queue is empty")


def test_time_over_chains_the_last_exception() -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError") as caught:
        eventually(lambda: 1 / 0, timeout_s=0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "inf", "nan"])
def test_a_bad_patience_is_one_clear_error(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADERQ_TEST_PATIENCE", text)
    with pytest.raises(ConfigurationError, match="LEADERQ_TEST_PATIENCE"):
        patience()


def test_patience_stretches_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADERQ_TEST_PATIENCE", "0.5")
    with pytest.raises(AssertionError, match=r"within 0\.01 s"):
        eventually(lambda: False, timeout_s=0.02, interval_s=0)


class _falsy(list[int]):  # noqa: N801 - a value that is false and shows what it is
    def __bool__(self) -> bool:
        return False
