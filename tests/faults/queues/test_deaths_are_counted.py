"""An item that kills its consumers is set aside after as many deaths as the retry policy says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leaderq.queues import TEXT, DistributedQueue
from leaderq.testing import eventually
from leaderq.testing.waiting import patience
from leaderq.zookeeper import connect

CONSUMER = """
import os, sys, threading
from pathlib import Path
from leaderq.queues import TEXT, DistributedQueue, Retry
from leaderq.zookeeper import connect

address, log, attempts = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
timeout_s = float(sys.argv[4])  # who loses its session is taken for dead as well

def consume(value):
    with log.open("a") as file:
        file.write(f"{value}\\n")
    if value == "poison":
        os._exit(9)
    if value == "last":
        is_over.set()

is_over = threading.Event()
with connect(address, timeout_s=timeout_s) as session:
    retry = Retry(attempts=attempts, first_s=0.0)
    with DistributedQueue(
        session, "/q", consumer=consume, serializer=TEXT, lock_path="/locks", retry=retry
    ) as queue:
        while not is_over.wait(0.05) and not (queue.dead_letters.count() and not queue.depth()):
            pass
"""


def run(address: str, log: Path, attempts: int) -> bool:
    """One consumer, until it dies or is done; whether it died."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [address, str(log), str(attempts), str(patience())]
    command = [sys.executable, "-c", CONSUMER, *words]
    ended = subprocess.run(command, env=environment, timeout=60 * patience(), check=False)
    assert ended.returncode in (0, 9)
    return ended.returncode == 9


@pytest.mark.parametrize("innocent, attempts, most", [(0, 1, 1), (40, 2, 3)])
def test_an_item_over_which_consumers_die_is_set_aside_and_no_other(
    zookeeper_server, znode_root, tmp_path, innocent, attempts, most
):
    log = tmp_path / "begun"
    address = f"{zookeeper_server.address}{znode_root}"
    with connect(address) as session:
        queue = DistributedQueue(session, "/q", serializer=TEXT, lock_path="/locks")
        with queue:
            queue.put_many([f"before {number}" for number in range(innocent // 2)])
            queue.put("poison")
            queue.put_many([f"after {number}" for number in range(innocent // 2)])
            deaths = 0
            while run(address, log, attempts):
                deaths += 1
                assert deaths <= most
                eventually(lambda: not session.children("/locks"), timeout_s=30)
            assert deaths >= attempts
            (letter,) = queue.dead_letters.browse()
            assert (letter.found.items, letter.note.reason) == ([b"poison"], "died")
            assert "consumers died while they worked on it" in (letter.note.error or "")
            assert queue.depth() == 0
            begun = log.read_text().splitlines()
            assert begun.count("poison") == deaths
            assert len({value for value in begun if value != "poison"}) == innocent
            assert session.children("/q-meta/claims") == []
