"""For all rings. The fixtures that give servers come from leaderq's own pytest plugin."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from postgres import postgres, postgres_server  # noqa: F401  (fixtures)
from redis_server import redis_url  # noqa: F401

from leaderq.kafka.clients.kafka_python_connection import DIRECT
from leaderq.testing import ZooKeeperServer
from leaderq.testing.candidate_process import CandidateProcess

import kafka  # isort: skip  (leaderq.kafka keeps the warnings of it to itself)

pytest_plugins = ["leaderq.testing.plugin"]
JAAS = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_alice="wonderland"
    user_bob="builder";
};
"""
LONG = Path(__file__).with_name("long.txt")

# An example that took long tells of a busy machine, not of the program.
settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


# A client that is closed while it connects forgets its socket, and the collector would tell of it
# at random, in another test. leaderq's way to connect closes it: bare clients of tests go that way.
for _client in (kafka.KafkaAdminClient, kafka.KafkaConsumer, kafka.KafkaProducer):
    _client.DEFAULT_CONFIG["proxy_url"] = DIRECT


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach what tests start."""
    # A shell without job control lets what it starts in the background ignore Ctrl-C, and so would
    # all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, None, None]:
    """What is collected stands to the end: a million objects that are never looked through for
    garbage, neither while they are made nor in a test.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what ``long.txt`` lists; a line of it that fits no test is an error where all are
    collected.
    """
    lines = [line for line in LONG.read_text().splitlines() if not line.startswith("#")]
    found = set()
    for item in items:
        whole = item.nodeid.replace("\\", "/")
        for line in {whole, whole.partition("[")[0], whole.partition("::")[0]}.intersection(lines):
            item.add_marker(pytest.mark.long)
            found.add(line)
    if config.args == config.getini("testpaths") and (stale := sorted(set(lines) - found)):
        raise pytest.UsageError(f"{LONG}: no such test: {stale}")
    if hasattr(config, "workerinput"):
        items[:] = _spread(items)


def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """Lives, which compute, among the files of tests that wait: the cores are never idle."""
    lives = [one for one in items if one.path.name == "test_lives.py"]
    others = [one for one in items if one.path.name != "test_lives.py"]
    files = [[*group] for _, group in itertools.groupby(others, key=lambda one: one.path)]
    waiting = sum(len(one) for one in files if _waits(one[0]))
    spread, passed, led = [], 0, 0
    for tests in files:
        spread += tests
        if _waits(tests[0]):
            passed += len(tests)
            due = len(lives) * passed // waiting
            spread += lives[led:due]
            led = due
    return spread + lives[led:]


def _waits(item: pytest.Item) -> bool:
    return not {"unit", "simulation", "model"}.intersection(item.path.parts)


@pytest.fixture(autouse=True)
def _logging_as_found() -> Iterator[None]:
    """A verb that is run in this process sets up its logging, which would stay for the tests after
    it.
    """
    root, names = logging.getLogger(), ("kazoo", "kafka", "leaderq", "leaderq.zookeeper.session")
    handlers, levels = (
        list(root.handlers),
        {name: logging.getLogger(name).level for name in ("", *names)},
    )
    yield
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch) -> None:
    """What the developer has set for their own use of leaderq must not change a test; what chooses
    the servers stays.
    """
    rig = ("LEADERQ_CACHE", "LEADERQ_JAVA", "LEADERQ_SERVERS", "LEADERQ_TEST_")
    for name in os.environ:
        if name.startswith("LEADERQ_") and not name.startswith(rig):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def sasl_server() -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server with the users of ``JAAS``."""
    with ZooKeeperServer(jaas=JAAS) as server:
        yield server


@pytest.fixture
def start(
    zookeeper_server, znode_root, tmp_path, fault_proxy
) -> Iterator[Callable[..., CandidateProcess]]:
    """Start a candidate below the test's own root; all are stopped after the test, and before the
    proxies they go through. Leaders are to go when a test wants it, not when a machine stalls.
    """
    with ExitStack() as stack:

        def begin(target: str, *, id: str = "a", arguments: Any = (), **more: Any) -> Any:
            usual = {"zookeeper": zookeeper_server.address, "cwd": tmp_path}
            options: Any = {**usual, "session_timeout_s": 15.0, **more}
            arguments = ["--root", znode_root, *arguments]
            return stack.enter_context(
                CandidateProcess(target, id=id, arguments=arguments, **options)
            )

        yield begin
