"""Standard streams that are closed, and a current directory that is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leaderq.queues import DistributedQueue
from leaderq.testing.jars import cache_folder
from leaderq.testing.waiting import patience

STREAMS = """
import json, os
from pathlib import Path
from leaderq import LeaderCareer

class Streams(LeaderCareer):
    def execute(self, term):
        print("x" * 1_000_000, flush=True)
        said = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
        Path("streams.json").write_text(json.dumps(said))
        term.finish()
"""


@pytest.fixture
def leaderq_under(folder):
    def run(*arguments: str, redirected: str) -> subprocess.CompletedProcess:
        shell = ["sh", "-c", f'exec "$@" {redirected}', "sh"]
        return subprocess.run(
            [*shell, sys.executable, "-m", "leaderq", *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
            capture_output=True,
            text=True,
            timeout=60 * patience(),
        )

    return run


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error_where_nothing_can_be_lost(leaderq_under, closed):
    done = leaderq_under("version", redirected=closed)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_drained_to_a_standard_output_that_is_closed(
    leaderq_under, session, zookeeper_server, znode_root
):
    path = f"{znode_root}/precious"
    with DistributedQueue(session, path) as queue:
        queue.put(b"precious")
        arguments = ["drain", path, "--yes", "--zookeeper", zookeeper_server.address]
        done = leaderq_under("queue", *arguments, redirected=">&-")
        assert done.returncode == 2
        assert "standard output is closed" in done.stderr
        assert "/dev/null" in done.stderr
        assert queue.depth() == 1


def test_what_a_career_prints_goes_into_no_socket_of_ours(
    leaderq_under, folder, znode_root, zookeeper_server
):
    (folder / "streams.py").write_text(STREAMS)
    arguments = ["--zookeeper", zookeeper_server.address, "--root", znode_root]
    done = leaderq_under("run", "streams:Streams", *arguments, redirected="<&- >&- 2>&-")
    assert done.returncode == 0
    streams = json.loads((folder / "streams.json").read_text())
    assert not any("socket" in stream for stream in streams)


def test_servers_stay_in_the_background_until_they_are_told_to_go(folder, shell, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    for jars in cache_folder().glob("[!s]*"):  # they are not fetched once more
        (cache / jars.name).symlink_to(jars)
    own = os.environ | {"LEADERQ_CACHE": str(cache)}

    def servers(*arguments):
        command = [sys.executable, "-m", "leaderq", "servers", *arguments]
        return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)

    assert "no servers run" in servers("down").stderr
    up = servers("up", "--detach", "--json")
    try:
        assert up.returncode == 0, up.stderr
        pair = json.loads(up.stdout)
        assert shell("doctor", **pair).code == 0
        again = servers("up", "--detach")
        export = "export LEADERQ_ZOOKEEPER={zookeeper} LEADERQ_KAFKA={kafka}\n"
        assert again.stdout == export.format(**pair)
    finally:
        down = servers("down")
    assert (down.returncode, down.stderr) == (0, "stopped\n")
    assert "no servers run" in servers("down").stderr


@pytest.fixture
def complete(shell, given, monkeypatch):
    """What bash is offered for the last of these words, which stand behind ``leaderq``."""

    def ask(*words: str, **settings: str) -> list[str]:
        monkeypatch.setenv("_LEADERQ_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(["leaderq", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        done = shell(**{**given, **settings})
        assert done.err == ""
        return [line.partition(",")[2] for line in done.lines if line]

    return ask


def test_verbs_are_completed_without_servers_and_names_are_asked_of_zookeeper(
    complete, stand, znode_root, session
):
    stand("bert")
    nowhere = {"zookeeper": "127.0.0.1:1"}
    assert complete("queue", "pu", **nowhere) == ["put", "purge"]
    assert complete("status", "--fa", **nowhere) == ["--failing"]
    assert complete("status", "--career", "", **nowhere) == []  # and nothing is said
    session.ensure_path(f"{znode_root}/orders-meta")
    session.ensure_path(f"{znode_root}/orders")
    assert complete("status", "--career", "ad") == ["ad-billing"]
    assert complete("transfer", "--career", "ad-billing", "--to", "b") == ["bert"]
    assert complete("queue", "drain", f"{znode_root}/o") == [f"{znode_root}/orders"]
