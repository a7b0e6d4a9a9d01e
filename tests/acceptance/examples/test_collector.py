"""The collector, by its README."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest
from following_readmes import EXAMPLES, commands

from leaderq.kafka.topics import end_offsets
from leaderq.testing import eventually
from leaderq.testing.ports import lease_port


@pytest.fixture
def port() -> Iterator[int]:
    # out of reach of all that is given any port, also while the collector is down
    leased = lease_port()
    yield leased.number
    leased.release()


@pytest.mark.timeout(300)
def test_the_collector_does_what_its_readme_says(reader, servers, tmp_path, port):
    _up, feed, collect, visit, look = commands(EXAMPLES / "collector" / "README.rst")
    user = reader(EXAMPLES)
    user.environment |= servers
    assert user.types(feed) == "fed 8000 records; clicks holds 8000\n"
    # A port and a folder of the test's own; a reader has those of the text.
    collector = user.opens(f"{collect} --port {port} --journal {tmp_path / 'journal'}")
    collector.wait_for(rf"collecting on port {port}; 0 clicks found")
    assert user.types(f"{visit} --port {port}") == "1000 clicks of 1000 were taken\n"
    eventually(
        lambda: '"confirmed": 1000' in user.types(look.replace("8080", str(port))), timeout_s=30
    )
    assert sum(end_offsets(user.environment["LEADERQ_KAFKA"], "clicks").values()) == 9000
    assert post(port, b"no log line")[0] == 400
    assert post(port, b"", "/elsewhere")[0] == 404
    assert collector.interrupt() == 0
    assert "stopped; 0 clicks are left" in collector.printed


def post(port: int, body: bytes, path: str = "/clicks") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    try:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()
