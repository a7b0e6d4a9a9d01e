"""The pytest plugin as a user has it: sessions of pytest as subprocesses, in folders of their
own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SETTINGS = "[pytest]\nfilterwarnings = error\naddopts = -p no:leaderq\n"
OPTED_IN = 'pytest_plugins = ["leaderq.testing.plugin"]\n'


def run_pytest(
    folder: Path, tests: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "conftest.py").write_text(OPTED_IN)
    (folder / "test_it.py").write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=150,
    )


def outcome(done: subprocess.CompletedProcess[str]) -> str:
    return done.stdout.splitlines()[-1] if done.stdout else done.stderr


def test_a_user_gets_names_of_their_own_and_a_server_that_serves_whatever_was_done_to_it(
    tmp_path: Path,
) -> None:
    done = run_pytest(
        tmp_path,
        """
import pytest
from leaderq.testing import eventually
@pytest.mark.parametrize("deed", ["kill", "freeze"])
def test_one(zookeeper_server, deed):
    assert eventually(lambda: zookeeper_server.ask("ruok")) == "imok"
    getattr(zookeeper_server, deed)()
def test_two(zookeeper_server, znode_root, topic_name):
    assert eventually(lambda: zookeeper_server.ask("ruok")) == "imok"
    assert znode_root.startswith("/t-") and topic_name.startswith("t-")
""",
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in outcome(done), done.stdout
    assert not (tmp_path / "logs").exists()


def test_the_logs_of_all_servers_are_kept_when_a_test_fails(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
from leaderq.testing import ZooKeeperServer
def test_one(zookeeper_server):
    with ZooKeeperServer(name="own"):
        raise RuntimeError("in the block")
""",
    )
    assert done.returncode == 1
    (folder,) = (tmp_path / "logs").iterdir()
    assert {path.name for path in folder.iterdir()} == {"zookeeper.log", "own.log", ".gitignore"}
    assert "binding to port" in (folder / "own.log").read_text()
    assert f"server logs of failed tests: {folder}" in done.stdout
