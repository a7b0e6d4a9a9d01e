"""The simulated ensemble cannot lie: what is drawn at random is done to it and to real servers.

Three clients do one operation after the other. Every answer, every error and every event of a watch
must be the same, and for each connection in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from both_kinds import Servers
from compat.versions import NEWEST, SERVERS, use
from drawn_histories import NUMBERS, SEED, STEPS, VERSION, Histories, Step, drawn, settings_for
from drawn_requests import MAX_BYTES
from hypothesis import given, seed
from kazoo.protocol import serialization as kazoo_wire
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_acl

from leaderq.testing import ZooKeeperServer, jars
from leaderq.testing.provision import runs_from_jars
from leaderq.zookeeper.wire import Create, Delete, Multi

VERSIONS = [zookeeper for zookeeper, _ in SERVERS]
USUAL_STEPS = {version: 20_000 if version == NEWEST[0] else 2_000 for version in VERSIONS}


def kept(root: str) -> list[Step]:
    """What was answered otherwise once."""
    no_digest = [make_acl("digest", "no digest", all=True)]
    closed = f"{root}/c"
    again = [Create(f"{root}/b", sequential=True), Delete(f"{root}/a"), Create(f"{root}/a")]
    return [
        Step(0, [Multi(again, lambda path, _: path, OPEN_ACL_UNSAFE)]),
        Step(1, [kazoo_wire.GetChildren(root, None)]),
        Step(0, [kazoo_wire.Create(closed, b"", no_digest, 0)]),
        Step(0, [kazoo_wire.Auth(0, "digest", "alice:secret")]),
        Step(0, [kazoo_wire.Create(closed, b"", CREATOR_ALL_ACL, 0)]),
        Step(1, [kazoo_wire.Exists(closed, None)]),
        Step(0, [kazoo_wire.SetACL(closed, [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE], -1)]),
        Step(1, [kazoo_wire.GetACL(closed)]),
    ]


# -- the test --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    if VERSION not in request.param:
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
        made = Histories(Servers([server.address], version, max_request_bytes=MAX_BYTES))
        yield made
        made.close()


def test_real_servers_say_what_simulated_ones_say(histories, version):
    @seed(SEED)
    @settings_for(STEPS or USUAL_STEPS[version])
    @given(NUMBERS)
    def try_history(numbers: bytes) -> None:
        root = histories.new_root()
        histories.check(root, drawn(numbers, root))

    histories.check(root := histories.new_root(), kept(root))
    try_history()
