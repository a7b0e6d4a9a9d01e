"""What a command is told of its term, what its end means, and what cannot be run at all."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from terms import open_term

from leaderq.config.loading import from_environment
from leaderq.errors import CommandFailed
from leaderq.running.command import CommandCareer, DeadlineFile, check_command, failure, variables
from leaderq.term import Reason


def told(unclean: bool = False) -> dict[str, str]:
    term = open_term(7, unclean=unclean)
    return dict(variables(term, lease_s=20 / 3, budget_s=10.0, deadline="/f"))


def test_a_command_is_told_all_that_it_can_use():
    assert told(unclean=True) == {
        "LEADERQ_TERM_CAREER": "c",
        "LEADERQ_TERM_CANDIDATE": "a",
        "LEADERQ_TERM_NUMBER": "7",
        "LEADERQ_TERM_ID": "t7",
        "LEADERQ_TERM_UNCLEAN": "1",
        "LEADERQ_TERM_LEASE_S": "6.66667",
        "LEADERQ_TERM_BUDGET_S": "10",
        "LEADERQ_TERM_DEADLINE_FILE": "/f",
    }


def test_what_a_command_is_told_is_not_taken_for_settings_by_leaderq_within_it(tmp_path):
    assert from_environment(told(), tmp_path).values == {}


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (1, 1, "command 'job' failed: exit code 1"),
        (255, 255, "exit code 255"),
        (-9, 137, "command 'job' was ended by SIGKILL"),
        (-15, 143, "SIGTERM"),
        (-40, 168, "SIG40"),
    ],
)
def test_an_end_without_success_has_the_exit_code_of_a_shell(status, code, said):
    error = failure("job", status)
    assert error is not None
    assert error.exit_code == code
    assert said in str(error)
    assert failure("job", 0) is None


def test_what_cannot_be_run_is_told_with_the_exit_code_of_a_shell(tmp_path, monkeypatch):
    (tmp_path / "text").write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, code, said in [
        ("no-such-job", 127, "was not found: it is in no folder of PATH"),
        (f"{tmp_path}/job", 127, "was not found: there is no such file"),
        (f"{tmp_path}/text", 126, "is not executable; chmod +x it"),
        ("text", 126, "is not executable"),
        (str(tmp_path), 126, "it is a folder"),
    ]:
        with pytest.raises(
            CommandFailed, match=f"^command '{name}' .*{said}".replace("+", r"\+")
        ) as caught:
            check_command(name)
        assert caught.value.exit_code == code
    check_command("sh")


def test_a_deadline_can_be_read_by_another_process_and_is_never_later_than_it_is():
    file = DeadlineFile(1234.5678)
    assert subprocess.check_output(["cat", file.path]) == b"1234.567\n"
    file.tell(99999.25)
    assert subprocess.check_output(["cat", file.path]) == b"99999.250\n"
    file.close()
    assert not Path(file.path).exists()


@pytest.mark.parametrize(
    ("reason", "kill_s"),
    [
        (None, 50.0),
        (Reason.STEP_DOWN, 50.0),
        (Reason.LEASE, 50.0),
        (Reason.FENCED, 0.0),
        (Reason.NODE_DELETED, 0.0),
        (Reason.SESSION, 0.0),
    ],
)
def test_whoever_may_have_a_successor_already_kills_its_command_at_once(reason, kill_s):
    command: Any = SimpleNamespace(session=SimpleNamespace(timeout_s=6.0))
    term: Any = SimpleNamespace(reason=reason, deadline=100.0)
    assert CommandCareer._kill_s(command, term, 50.0) == kill_s
    assert CommandCareer._kill_s(command, term, 500.0) == (101.0 if kill_s else 0.0)
