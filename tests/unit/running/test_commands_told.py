"""What a command is told of its deadline, and why a command cannot be run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from leaderq import clock
from leaderq.errors import CommandFailed
from leaderq.running.command import DeadlineFile, _not_started, check_command


def test_what_is_there_and_cannot_be_run_is_told_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "old").write_text("#!/no/such/python -u\n")
    (tmp_path / "old").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, code, said in [
        ("", 127, "was not found: its name is empty"),
        ("old", 126, "its first line names '/no/such/python', which is not there"),
    ]:
        with pytest.raises(CommandFailed, match=f"^command '{name}' .*{said}") as caught:
            check_command(name)
        assert caught.value.exit_code == code
    for name, code in [("no-such-job", 127), ("old", 126)]:  # found out only when it is started
        with pytest.raises(FileNotFoundError) as missing:
            subprocess.run([name], check=True)
        assert _not_started(name, missing.value).exit_code == code


def test_the_seconds_left_are_told_until_the_term_is_over_or_its_file_is_gone():
    file = DeadlineFile(clock.now_s() + 9.0)
    assert 8.0 < DeadlineFile.left_s(file.path) < 9.0
    file.tell(clock.now_s() - 1.0)
    assert DeadlineFile.left_s(file.path) < 0.0
    file.close()
    assert not Path(file.path).exists()
    assert DeadlineFile.left_s(file.path) == 0.0
