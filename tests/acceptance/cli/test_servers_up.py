"""``leaderq servers up``: a pair of real servers for as long as it runs."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from leaderq.testing.waiting import patience


@contextlib.contextmanager
def taken(port: int) -> Iterator[None]:
    """The port is not free meanwhile, whoever has it."""
    with socket.socket() as ours:
        with contextlib.suppress(OSError):
            ours.bind(("127.0.0.1", port))
            ours.listen()
        yield


def test_servers_are_up_when_their_addresses_are_printed_and_down_when_it_ends(
    folder, environment, shell
):
    command = [sys.executable, "-m", "leaderq", "servers", "up", "--json"]
    with (
        taken(9092),
        subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        pair = json.loads(process.stdout.readline())
        try:
            done = shell("doctor", **pair)
            assert done.returncode == 0, done.stdout
        finally:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60 * patience())
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert "port 9092 is taken, so Kafka gets another" in err
    for address in pair.values():
        host, _, port = address.rpartition(":")
        with (
            pytest.raises(ConnectionRefusedError),
            socket.create_connection((host, int(port)), timeout=5),
        ):
            pass
