"""Fixtures for tests on real servers. To have them, write ``pytest_plugins =
["leaderq.testing.plugin"]`` in ``conftest.py``.

===================  ========  =====================================================================
fixture              scope     value
===================  ========  =====================================================================
zookeeper_server     session   a ZooKeeper server (``.address``; kill, freeze, thaw, start, restart)
zookeeper_ensemble   session   three of them (``.members``, ``.leader``, ``.followers``)
kafka_broker         session   a running Kafka broker
kafka_cluster        session   three of them (``.members``)
znode_root           function  a path that no other test uses, such as ``/t-0f3c...``
topic_name           function  a topic name that no other test uses
fault_proxy          function  ``fault_proxy(address)``: a ``FaultProxy`` in front of that server
kafka_fault_proxy    function  one in front of ``kafka_broker``; clients that begin at it stay there
===================  ========  =====================================================================

The environment says whether the servers run from jars, run in containers, or are given
(``LEADERQ_SERVERS``, ``LEADERQ_ZOOKEEPER``, ``LEADERQ_KAFKA``). After each test, frozen servers are
thawed, and killed ones are started. If Java, jars or Docker are missing, a test is skipped with the
reason; if ``CI`` is set, it fails. A test that asks for a fault of a given server is skipped. When
a test fails, the logs of all servers are copied to ``logs/<session>``, and the summary says so.
Sessions and xdist workers each have their own servers, ports and folders.
"""

from __future__ import annotations

import os
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leaderq.testing.server import failure_listeners, started_servers

if TYPE_CHECKING:
    from leaderq.testing.fault_proxy import FaultProxy
    from leaderq.testing.jars import Progress
    from leaderq.testing.ports import LeasedPort
    from leaderq.testing.server import Server

PROXIED = "PROXIED"
"""The listener of ``kafka_broker`` that sends its clients to ``kafka_fault_proxy``."""

_session_servers: list[Server] = []
_before_kafka: weakref.WeakKeyDictionary[Server, LeasedPort] = weakref.WeakKeyDictionary()
"""For each broker, the port of the proxy in front of it; the broker sends its clients there."""


@pytest.fixture(scope="session")
def zookeeper_server(pytestconfig: pytest.Config) -> Iterator[Any]:
    """A ZooKeeper server for the session."""
    yield from serve(pytestconfig, "ZooKeeperServer")


@pytest.fixture(scope="session")
def zookeeper_ensemble(pytestconfig: pytest.Config) -> Iterator[Any]:
    """Three ZooKeeper servers for the session."""
    yield from serve(pytestconfig, "ZooKeeperEnsemble")


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig: pytest.Config) -> Iterator[Any]:
    """A Kafka broker for the session."""
    yield from serve_kafka(pytestconfig)


@pytest.fixture(scope="session")
def kafka_cluster(pytestconfig: pytest.Config) -> Iterator[Any]:
    """Three Kafka brokers for the session."""
    yield from serve(pytestconfig, "KafkaCluster")


@pytest.fixture
def znode_root() -> str:
    """A path that only this test uses; it is not created."""
    return f"/t-{uuid.uuid4().hex}"


@pytest.fixture
def topic_name() -> str:
    """A topic name that only this test uses; the topic is not created."""
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture
def fault_proxy() -> Iterator[Callable[[str], FaultProxy]]:
    """A function that makes fault proxies; they are stopped after the test."""
    from leaderq.testing.fault_proxy import FaultProxy

    made: list[FaultProxy] = []

    def make(upstream: str) -> FaultProxy:
        made.append(FaultProxy(upstream).start())
        return made[-1]

    yield make
    for proxy in made:
        proxy.stop()


@pytest.fixture
def kafka_fault_proxy(kafka_broker: Any) -> Iterator[FaultProxy]:
    """A fault proxy in front of the session's broker. Clients that begin at the proxy stay with
    it.
    """
    from leaderq.testing.fault_proxy import FaultProxy

    port = _before_kafka.get(kafka_broker)
    if port is None:
        pytest.skip(
            "Kafka is given or in a container; a proxy can stand only before one that runs from"
            " jars"
        )
    with FaultProxy(kafka_broker.address_of(PROXIED), port=port) as proxy:
        yield proxy


def serve_kafka(config: pytest.Config) -> Iterator[Server]:
    """As ``kafka_broker``, for a fixture of that name with another scope. Tests that kill a broker
    should have one: a broker that does not hold the topics of a whole session comes back sooner.
    """
    from leaderq.testing.ports import lease_port
    from leaderq.testing.provision import runs_from_jars

    if not runs_from_jars("KafkaBroker"):
        yield from serve(config, "KafkaBroker")
        return
    before = lease_port()
    way_in = {"listeners": {PROXIED: "PLAINTEXT"}, "advertised": {PROXIED: before.address}}
    for server in serve(config, "KafkaBroker", **way_in):
        _before_kafka[server] = before
        yield server
    before.release()


def serve(config: pytest.Config, kind: str, **options: Any) -> Iterator[Server]:
    """Yield a server for a fixture of yours; it is healed after each test, and stopped at the end.

    ``kind`` and ``options`` are as for :func:`leaderq.testing.provision.provided`.
    """
    from leaderq.errors import MissingPiece
    from leaderq.testing.provision import GivenServer, provided

    try:
        server = provided(kind, progress=_reporter(config), **options).start()
    except MissingPiece as exc:
        if os.environ.get("CI", "").lower() not in ("", "0", "false"):
            pytest.fail(f"CI must have the servers: {exc}", pytrace=False)
        pytest.skip(str(exc))
    if isinstance(server, GivenServer):
        server.on_fault = pytest.skip
    _session_servers.append(server)
    yield server
    _session_servers.remove(server)
    server.stop()


def _reporter(config: pytest.Config) -> Progress:
    """A function that shows progress even if output is captured, because the first run fetches 50
    MB.
    """
    from leaderq.testing.jars import to_stderr

    capture = config.pluginmanager.getplugin("capturemanager")

    def report(line: str) -> None:
        if capture is None:
            to_stderr(line)
            return
        with capture.global_and_fixture_disabled():
            to_stderr(line)

    return report


# -- undoing faults, keeping logs


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Heal the servers of the session, whatever the test did to them."""
    for server in _session_servers:
        server.heal()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    """Copy the servers' logs when a test fails, before the test's own servers are gone."""
    report = yield
    item.config.stash[_KEEPER].settle(has_failed=report.failed)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the controller where the logs are, because a worker of pytest-xdist has no terminal."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["leaderq_logs"] = session.config.stash[_KEEPER].folders


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note where a worker of pytest-xdist has put logs, when it has ended; a crashed one does not
    tell.
    """
    node.config.stash[_KEEPER].folders += getattr(node, "workeroutput", {}).get("leaderq_logs", [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for folder in config.stash[_KEEPER].folders:
        terminalreporter.write_line(f"server logs of failed tests: {folder}")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the name of the log folder; the folder is made when a test fails."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    keeper = _LogKeeper(config.invocation_params.dir / "logs" / f"{stamp}-{os.getpid()}-{worker}")
    config.stash[_KEEPER] = keeper
    failure_listeners.append(keeper.hold)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Forget this session, so that another session of this process finds nothing of it."""
    failure_listeners.remove(config.stash[_KEEPER].hold)


class _LogKeeper:
    """If the ``with`` block of a server fails, keeps the server's logs until the test's result is
    known.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folders: list[str] = []
        """Where logs were kept: here, or by workers of this session."""
        self._held: dict[str, bytes] = {}

    def hold(self, server: Server, error: BaseException | None = None) -> None:
        if not isinstance(error, pytest.skip.Exception):
            self._held |= {
                path.name: path.read_bytes() for path in server.log_paths if path.exists()
            }

    def settle(self, *, has_failed: bool) -> None:
        for server in started_servers() if has_failed else ():
            self.hold(server)
        held, self._held = self._held, {}
        if not (has_failed and held):
            return
        self.folders = [str(self.path)]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / ".gitignore").write_text("*\n")  # whatever the project ignores
            for name, content in held.items():
                (self.path / name).write_bytes(content)
        except OSError as exc:  # would end the whole session
            self.folders = [f"not kept: {exc}"]


_KEEPER = pytest.StashKey[_LogKeeper]()
