"""The simulated ensemble cannot lie: what is drawn at random is done to it and to real servers.

Three clients do one operation after the other. Every answer, every error and every event of a watch
must be the same, and for each connection in the same order. With three servers there is a client at
each; one that has not done the last step first catches up with the others, so that each answer is
determined: by a sync at a follower, by a write of its own at the leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from random import Random

import pytest
from both_kinds import Client, Connection, Servers
from compat.versions import NEWEST, SERVERS, use
from drawn_histories import (
    IN_ONE_HISTORY,
    NUMBERS,
    SEED,
    STEP_BYTES,
    STEPS,
    VERSION,
    Histories,
    Step,
    drawn,
    settings_for,
)
from drawn_requests import MAX_BYTES
from hypothesis import given, seed
from kazoo.protocol import serialization as kazoo_wire
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_acl

from leaderq.testing import ZooKeeperEnsemble, ZooKeeperServer, eventually, jars
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


@pytest.fixture(scope="module", params=VERSIONS)
def version(request) -> str:
    if VERSION not in request.param:
        pytest.skip("another version is asked for")
    if not runs_from_jars("ZooKeeperServer"):
        pytest.skip("the version of the server must be known")
    return str(request.param)


@pytest.fixture(scope="module")
def histories(version) -> Iterator[Histories]:
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


MARK = "/mark"


class Fault(Enum):
    """What happens to a server in a history; the next one finds all three."""

    STOP_THE_LEADER = auto()
    STOP_A_FOLLOWER = auto()


class HistoriesOfThree(Histories):
    def __init__(self, real: ZooKeeperEnsemble) -> None:
        self._real = real
        self._latest: Connection | None = None
        version = real.members[0].ask("srvr").partition("version: ")[2].partition("-")[0]
        super().__init__(
            Servers(
                [member.address for member in real.members],
                version,
                step_s=0.01,
                max_request_bytes=MAX_BYTES,
                leader=self._leader(),
            )
        )
        self._clients[0].newest.do(kazoo_wire.Create(MARK, b"", OPEN_ACL_UNSAFE, 0))

    def _leader(self) -> int:
        return self._real.members.index(self._real.leader)

    def catch_up(self, connection: Connection) -> None:
        if connection is not self._latest:
            is_led = connection.server == self._servers.ensemble.leader
            connection.do(kazoo_wire.SetData(MARK, b"", -1) if is_led else kazoo_wire.Sync(MARK))
            self._latest = connection

    def taken_over(self, former: Connection, newest: Connection) -> None:
        if former.server == newest.server:
            super().taken_over(former, newest)
        else:
            former.do(kazoo_wire.GetData(MARK, None))
            former.do(kazoo_wire.SetData(MARK, b"", -1))
            former.close()

    def take(self, step: Step) -> None:
        if isinstance(step.what, Fault):
            self.settle()
            self._stop(step.what)
        else:
            super().take(step)

    def _stop(self, fault: Fault) -> None:
        ensemble, leader = self._servers.ensemble, self._leader()
        leads = fault is Fault.STOP_THE_LEADER
        stopped = leader if leads else (leader + 1) % 3
        self._real.members[stopped].kill()
        ensemble.stop(stopped)
        for connection in self._servers.opened:
            if connection.real.is_open and (leads or connection.server == stopped):
                connection.real.hear_the_end()
        left = [one for one in self._real.members if one is not self._real.members[stopped]]
        eventually(
            lambda: {one.mode for one in left} == {"leader", "follower"},
            message="two servers go on",
        )
        if leads:
            ensemble.elect(self._leader())
        self._servers.pass_time(5.0)
        assert ensemble.leader == self._leader()

    def _new_clients(self) -> list[Client]:
        self._real.start()
        for number in range(3):
            self._servers.ensemble.start(number)
        self._servers.pass_time(5.0)
        assert self._servers.ensemble.leader == self._leader()
        return super()._new_clients()


@pytest.fixture(scope="module")
def histories_of_three() -> Iterator[HistoriesOfThree]:
    if not runs_from_jars("ZooKeeperEnsemble"):
        pytest.skip("the version of the servers must be known")
    with ZooKeeperEnsemble(
        settings={"forceSync": "no"}, jvm_options=[f"-Djute.maxbuffer={MAX_BYTES}"]
    ) as real:
        made = HistoriesOfThree(real)
        yield made
        made.close()


@seed(SEED)
@settings_for(STEPS // 10 or 1000)
@given(numbers=NUMBERS)
def test_three_real_servers_say_what_simulated_ones_say(histories_of_three, numbers):
    root = histories_of_three.new_root()
    histories_of_three.check(root, drawn(numbers, root, servers=3))


@pytest.mark.parametrize("fault", Fault)
def test_when_a_server_is_stopped_its_clients_go_on_as_in_a_simulated_ensemble(
    histories_of_three, fault
):
    chance = Random(SEED)
    for _ in range(max(1, STEPS // 100_000)):
        root = histories_of_three.new_root()
        steps = drawn(chance.randbytes(IN_ONE_HISTORY * STEP_BYTES), root, servers=3)
        steps.insert(len(steps) // 2, Step(0, fault))
        histories_of_three.check(root, steps)
