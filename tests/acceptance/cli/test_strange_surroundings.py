"""Standard streams that are closed, and a current directory that is gone."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from leaderq.queues import DistributedQueue
from leaderq.testing import eventually
from leaderq.testing.waiting import patience

STREAMS = """
import json, os
from pathlib import Path
from leaderq import LeaderCareer

class Streams(LeaderCareer):
    def execute(self, term):
        print("x" * 1_000_000, flush=True)
        said = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
        Path("new").write_text(json.dumps(said))
        Path("new").rename("streams.json")
        term.finish()

    def handOver(self, term):
        pass
"""


@pytest.fixture
def leaderq_under(folder, environment):
    """Run a verb in a shell that does ``first`` before it, or redirects it so."""

    def run(*arguments: str, first: str = "", redirected: str = "") -> subprocess.CompletedProcess:
        shell = ["sh", "-c", f'{first} exec "$@" {redirected}', "sh"]
        return subprocess.run(
            [*shell, sys.executable, "-m", "leaderq", *arguments],
            cwd=folder,
            env=environment() | {"PYTHONPATH": str(Path(__file__).parents[3])},
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
    leaderq_under, session, zookeeper_server
):
    path = f"/{uuid.uuid4().hex}"
    with DistributedQueue(session, path) as queue:
        queue.put(b"precious")
        arguments = ["drain", path, "--yes", "--zookeeper", zookeeper_server.address]
        done = leaderq_under("queue", *arguments, redirected=">&-")
        assert done.returncode == 2
        assert "standard output is closed" in done.stderr
        assert "/dev/null" in done.stderr
        assert queue.depth() == 1


def test_what_a_career_prints_goes_into_no_socket_of_ours(
    leaderq_under, folder, root, zookeeper_server
):
    (folder / "streams.py").write_text(STREAMS)
    arguments = ["--zookeeper", zookeeper_server.address, "--root", root]
    done = leaderq_under("run", "streams:Streams", *arguments, redirected="<&- >&- 2>&-")
    assert done.returncode == 0
    streams = json.loads(eventually(lambda: (folder / "streams.json").read_text()))
    assert not any("socket" in stream for stream in streams)
