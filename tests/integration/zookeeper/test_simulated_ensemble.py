"""The simulated ensemble cannot lie: what is drawn at random is done to it and to real servers.

Three clients do one operation after the other. Every answer, every error and every event of a watch
must be the same, and for each connection in the same order.

``LEADERQ_CONFORMANCE_STEPS`` says how many operations, ``LEADERQ_CONFORMANCE_SEED`` which,
``LEADERQ_CONFORMANCE_VERSION`` on which servers only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Any

import pytest
from both_kinds import Client, Comparison, Servers
from compat.versions import NEWEST, SERVERS, use
from drawn_requests import MAX_BYTES, Draw, RequestMaker, shown
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo_wire
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_acl

from leaderq.testing import ZooKeeperServer, jars
from leaderq.testing.provision import runs_from_jars
from leaderq.zookeeper.wire import HEADER_BYTES

VERSIONS = [zookeeper for zookeeper, _ in SERVERS]
STEPS = os.environ.get("LEADERQ_CONFORMANCE_STEPS")
USUAL_STEPS = {version: 20_000 if version == NEWEST[0] else 2_000 for version in VERSIONS}
SEED = int(os.environ.get("LEADERQ_CONFORMANCE_SEED", "27"))
ONLY = os.environ.get("LEADERQ_CONFORMANCE_VERSION", "")
IN_ONE_HISTORY = 200
CLIENTS = 3
BARRIER = kazoo_wire.Exists("/zookeeper", None)
"""What was sent to a client before the answer to this has come when the answer has."""


class Doing(Enum):
    """What a client does besides requests."""

    BEGIN_AGAIN = auto()
    COME_BACK = auto()
    TAKE_OVER = auto()  # through another connection, while the former is open
    COME_WITH_A_WRONG_PASSWORD = auto()
    COME_FROM_THE_FUTURE = auto()
    COME_AFTER_THE_END = auto()


DOINGS = list(Doing)
Step = tuple[int, Any]
"""The number of a client, and a request or a ``Doing``."""


def drawn(numbers: bytes, root: str) -> list[Step]:
    """The steps of one history."""
    maker = RequestMaker(root)
    steps: list[Step] = []
    for begin in range(0, len(numbers), 8):
        draw = Draw(int.from_bytes(numbers[begin : begin + 8], "little"))
        if draw.is_done:  # so that a failure is shown with what it needs
            continue
        at, what = draw.below(CLIENTS), draw.below(150)
        steps.append((at, DOINGS[what] if what < len(DOINGS) else maker.request(draw)))
    return steps


def kept(root: str) -> list[Step]:
    """What was answered otherwise once."""
    no_digest = [make_acl("digest", "no digest", all=True)]
    closed = f"{root}/c"
    return [
        (0, kazoo_wire.Create(closed, b"", no_digest, 0)),
        (0, kazoo_wire.Auth(0, "digest", "alice:secret")),
        (0, kazoo_wire.Create(closed, b"", CREATOR_ALL_ACL, 0)),
        (1, kazoo_wire.Exists(closed, None)),
        (0, kazoo_wire.SetACL(closed, [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE], -1)),
        (1, kazoo_wire.GetACL(closed)),
    ]


class Histories:
    """The same clients on both kinds of servers; nothing is left of one history for the next."""

    def __init__(self, address: str, version: str) -> None:
        self._servers = Servers([address], version, max_request_bytes=MAX_BYTES)
        self._count = 0
        self.begin()

    def begin(self) -> None:
        self.close()
        self._comparison = Comparison()
        self._clients = [Client(self._servers) for _ in range(CLIENTS)]

    def close(self) -> None:
        self._servers.close()

    def root(self) -> str:
        self._count += 1
        return f"/history-{self._count}"

    def check(self, root: str, steps: Sequence[Step]) -> None:
        try:
            self._check(root, steps)
        except BaseException:
            self.begin()
            raise

    def _check(self, root: str, steps: Sequence[Step]) -> None:
        for path in ("", "/a", "/b"):
            begun = kazoo_wire.Create(root + path, b"", OPEN_ACL_UNSAFE, 0)
            self._clients[0].newest.do(begun)
        for at, what in steps:
            client = self._clients[at]
            if not client.newest.is_open:
                client.take_up()
            if not client.newest.is_open:
                client.begin()
            if isinstance(what, Doing):
                _act(client, what)
                continue
            if len(what.serialize()) + HEADER_BYTES > MAX_BYTES:
                client.newest.do(BARRIER)
            client.newest.do(what)
        for client in self._clients:
            client.newest.do(BARRIER)
        done = [f"{at}: {what if isinstance(what, Doing) else shown(what)}" for at, what in steps]
        for client in self._clients:
            client.end()
            for connection in client.connections:
                connection.compare(self._comparison, done)
        self._comparison.keep_order()
        self._clients = [Client(self._servers) for _ in range(CLIENTS)]


def _act(client: Client, doing: Doing) -> None:
    former = client.newest
    former.do(BARRIER)
    if doing is Doing.TAKE_OVER:
        client.take_up()
        former.real.hear_the_end()
        return
    if doing in (Doing.BEGIN_AGAIN, Doing.COME_AFTER_THE_END):
        client.end()
    former.close()
    if doing is Doing.BEGIN_AGAIN:
        client.begin()
    elif doing is Doing.COME_WITH_A_WRONG_PASSWORD:
        client.take_up(password=b"\1" * 16)
    elif doing is Doing.COME_FROM_THE_FUTURE:
        client.take_up(last_zxid=1 << 60)
    else:
        client.take_up()


# -- the test --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    if ONLY not in request.param:
        pytest.skip("another version is asked for")
    if not runs_from_jars("ZooKeeperServer"):
        pytest.skip("the version of the server must be known")
    return str(request.param)


@pytest.fixture(scope="module")
def histories(version: str) -> Iterator[Histories]:
    pinned = jars.locked_jars
    use(zookeeper=version)
    try:
        server = ZooKeeperServer(
            settings={"forceSync": "no"}, jvm_options=[f"-Djute.maxbuffer={MAX_BYTES}"]
        ).start()
    finally:
        jars.locked_jars = pinned
    with server:
        assert f"version: {version}-" in server.ask("srvr")
        made = Histories(server.address, version)
        yield made
        made.close()


def test_real_servers_say_what_simulated_ones_say(histories: Histories, version: str) -> None:
    @seed(SEED)
    @settings(
        max_examples=max(1, int(STEPS or USUAL_STEPS[version]) // IN_ONE_HISTORY),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(st.binary(min_size=8 * IN_ONE_HISTORY, max_size=8 * IN_ONE_HISTORY))
    def try_history(numbers: bytes) -> None:  # integers would be drawn small, and often the same
        root = histories.root()
        histories.check(root, drawn(numbers, root))

    histories.check(root := histories.root(), kept(root))
    try_history()
