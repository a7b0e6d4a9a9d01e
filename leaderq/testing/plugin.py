"""pytest fixtures for tests on real servers. Ask for it in ``conftest.py``: ``pytest_plugins =
["leaderq.testing.plugin"]``.

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

The servers run from jars, in containers or are given, as the environment says (``LEADERQ_SERVERS``,
``LEADERQ_ZOOKEEPER``, ``LEADERQ_KAFKA``). After each test frozen servers are thawed and killed ones
started. Without Java, jars or Docker a test is skipped with the reason, and fails if ``CI`` is set.
A fault asked of a given server skips the test. When a test fails, the logs of all servers are
copied to ``logs/<session>``, and the summary says so. Sessions and xdist workers each have their
own servers, ports and folders.
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
"""The listener of ``kafka_broker`` whose clients are sent to ``kafka_fault_proxy``."""

_session_servers: list[Server] = []
_before_kafka: weakref.WeakKeyDictionary[Server, LeasedPort] = weakref.WeakKeyDictionary()
"""Ports for a proxy before a broker, which sends its clients there."""


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
    """A path of this test's own; it is not created."""
    return f"/t-{uuid.uuid4().hex}"


@pytest.fixture
def topic_name() -> str:
    """A topic name of this test's own; it is not created."""
    return f"t-{uuid.uuid4().hex}"


@pytest.fixture
def fault_proxy() -> Iterator[Callable[[str], FaultProxy]]:
    """A maker of fault proxies, stopped after the test."""
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
    """A fault proxy in front of the session's broker. Clients that begin at it stay with it."""
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
    """As ``kafka_broker``, for a fixture of that name with another scope: for tests that kill a
    broker, because one that has not held the topics of a whole session is back sooner.
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
    """For a fixture of yours: a server that is healed after each test, and stopped at the end.

    ``kind``, ``options``: as of :func:`leaderq.testing.provision.provided`.
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
    """Show progress although output is captured: the first run fetches 50 MB."""
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
    """Let the servers of the session serve again, whatever the test did to them."""
    for server in _session_servers:
        server.heal()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    """Copy the servers' logs when a test fails, before its own servers are gone."""
    report = yield
    item.config.stash[_KEEPER].settle(has_failed=report.failed)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist has no terminal; it tells its controller where the logs are."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["leaderq_logs"] = session.config.stash[_KEEPER].folders


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear from a worker of pytest-xdist that has ended; one that crashed says nothing."""
    node.config.stash[_KEEPER].folders += getattr(node, "workeroutput", {}).get("leaderq_logs", [])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for folder in config.stash[_KEEPER].folders:
        terminalreporter.write_line(f"server logs of failed tests: {folder}")


def pytest_configure(config: pytest.Config) -> None:
    """Only the name of the log folder is settled here; it is made when a test fails."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    keeper = _LogKeeper(config.invocation_params.dir / "logs" / f"{stamp}-{os.getpid()}-{worker}")
    config.stash[_KEEPER] = keeper
    failure_listeners.append(keeper.hold)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing behind for another session of this process."""
    failure_listeners.remove(config.stash[_KEEPER].hold)


class _LogKeeper:
    """Holds logs of servers whose ``with`` block failed until the test's result is known."""

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
        if has_failed and held:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / ".gitignore").write_text("*\n")  # whatever the project ignores
            self.folders = [str(self.path)]
            for name, content in held.items():
                (self.path / name).write_bytes(content)


_KEEPER = pytest.StashKey[_LogKeeper]()
