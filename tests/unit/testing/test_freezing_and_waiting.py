"""A frozen process stands still from the return of ``freeze`` on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leaderq.errors import ConfigurationError
from leaderq.testing.freezing import freeze
from leaderq.testing.waiting import eventually, patience

BUSY = """
import threading, zlib
def work():
    while True:
        zlib.crc32(bytes(200_000))
for _ in range(40):
    threading.Thread(target=work).start()
print("at work", flush=True)
"""


def states(pid: int) -> list[str]:
    return [
        (thread / "stat").read_text().rpartition(")")[2].split()[0]
        for thread in Path(f"/proc/{pid}/task").glob("*")
    ]


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="the states of threads are read from /proc"
)
def test_no_thread_of_a_frozen_process_runs_any_more() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            for _ in range(30):
                freeze(busy.pid)
                assert set(states(busy.pid)) == {"T"}
                os.kill(busy.pid, signal.SIGCONT)
        finally:
            busy.kill()


def test_a_process_that_is_gone_is_not_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    freeze(gone.pid)


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
