"""``leaderq run --http`` as a process: rude clients do not reach the work, a taken port says so."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from leaderq.exits import ExitCode
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess

RECORDER = "recorder:Recorder"


def address_of(candidate: CandidateProcess) -> tuple[str, int]:
    """Where it listens, as its log says."""

    def told() -> list[str]:
        said = "\n".join(str(line.get("message")) for line in list(candidate.lines))
        return re.findall(r"http endpoint listening address=(\S+)", said)

    host, _, port = eventually(told)[0].rpartition(":")
    return host, int(port)


def asked(address: tuple[str, int], request: bytes = b"GET /livez HTTP/1.0\r\n\r\n") -> bytes:
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def listening(pid: int) -> set[str]:
    """The inodes of the sockets on which the process listens. Linux only."""
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()]
    own = {str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()}
    return {f"socket:[{line[9]}]" for line in lines if line[3] == "0A"} & own


@pytest.fixture
def rude() -> Iterator[ExitStack]:
    with ExitStack() as clients:
        yield clients


def slowly(address: tuple[str, int], clients: ExitStack) -> None:
    """Open connections that never end their request, more than are kept."""
    for number in range(300):
        with suppress(OSError):  # the oldest are closed, that is the point
            client = clients.enter_context(socket.create_connection(address, timeout=60))
            client.sendall(b"GET /metrics HTTP/1.1\r\nX-%d: " % number)


def hammered(address: tuple[str, int], over: threading.Event) -> None:
    """Scrape without end, send garbage, and read nothing."""
    giant = b"GET /status HTTP/1.1\r\n" + b"a: b\r\n" * 1000
    requests = (b"GET /metrics HTTP/1.1\r\n\r\n", b"\x00" * 20_000, giant)
    while not over.is_set():
        for request in requests:
            with suppress(OSError), socket.create_connection(address, timeout=5) as client:
                client.sendall(request)


def test_rude_clients_take_neither_the_lease_nor_the_work(start, zookeeper_server, history, rude):
    options = {"arguments": ["--http", "0"], "session_timeout_s": 6}  # late after 2 s of silence
    a = start(RECORDER, id="a", zookeeper=zookeeper_server.address, **options)
    address = address_of(a)
    a.wait_for("stage_began", stage="execution")
    over = threading.Event()
    hammers = [threading.Thread(target=hammered, args=(address, over)) for _ in range(4)]
    slowly(address, rude)
    for one in hammers:
        one.start()
    try:
        believed = len(history.lines("believed"))
        eventually(lambda: len(history.lines("believed")) > believed + 500)  # each 10 ms
        assert asked(address).endswith(b"live\n")
        assert asked(address, b"GET /leader HTTP/1.0\r\n\r\n").endswith(b"leader\n")
    finally:
        over.set()
        for one in hammers:
            one.join()
    assert len(list(Path(f"/proc/{a.worker_pid}/task").iterdir())) < 30
    assert not a.said("work_paused")
    assert not a.said("term_ending")
    a.terminate()
    assert a.wait() == ExitCode.OK


def test_a_port_in_use_is_told_before_it_stands(start, zookeeper_server):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        options = {"arguments": ["--http", address]}
        a = start(RECORDER, id="a", zookeeper=zookeeper_server.address, **options)
        assert a.wait() == ExitCode.USAGE
    said = " ".join(str(line.get("message")) for line in a.lines)
    assert f"error: http: '{address}' cannot be listened on: Address already in use; choose" in said
    assert not a.said("standing")
