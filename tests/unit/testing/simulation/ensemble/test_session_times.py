"""When sessions end: in buckets of one tick, by what the leader has been told."""

from __future__ import annotations

from typing import Any

import pytest
from ensemble_world import Client, World
from kazoo.protocol.serialization import Create, Exists, PingInstance, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from leaderq.testing.simulation.ensemble import Hello, Hungup, ServerAnswer


def _end_of(world: World, client: Client, path: str = "/mine") -> float:
    """When an ephemeral znode vanishes, seen by another client to 10 ms."""
    limit_s = world.now_s + 30
    while world.now_s < limit_s:
        if not client.exists(path):
            return world.now_s
    raise AssertionError("it is still there")


@pytest.mark.parametrize(("began_s", "ends_s"), [(0.0, 4.5), (0.45, 4.5), (0.55, 5.0), (1.2, 5.5)])
def test_a_session_ends_at_the_tick_after_its_timeout(began_s: float, ends_s: float) -> None:
    world = World()
    ensemble = world.ensemble()
    world.run(began_s)
    heard: list[object] = []
    ensemble.connect(0, Hello(0, b"", 4.0), heard.append)
    world.run(ends_s - world.now_s - 0.01)
    assert Hungup() not in heard
    world.run(0.02)
    assert heard[-1] == Hungup()


@pytest.mark.parametrize(("cut_s", "ends_s"), [(3.45, 6.0), (3.6, 8.0)])
def test_the_leader_learns_of_a_followers_clients_only_when_it_pings(
    cut_s: float, ends_s: float
) -> None:
    world = World()
    ensemble = world.ensemble(3, tick_s=1.0, leader=2)
    client = Client(world, ensemble, 0)
    other = Client(world, ensemble, 2, Hello(0, b"", 20.0))
    client.create("/mine", b"", 1)
    world.run(3.4 - world.now_s)
    client.send(PingInstance)  # the leader hears of it with its ping at 3.5
    world.run(cut_s - world.now_s)
    ensemble.cut(0, 2)
    assert ends_s - 1.1 < _end_of(world, other) < ends_s + 0.1


def test_a_write_that_a_follower_passes_on_does_not_touch_the_session() -> None:
    world = World()
    ensemble = world.ensemble(3, tick_s=1.0, leader=2)
    client = Client(world, ensemble, 0)
    other = Client(world, ensemble, 2, Hello(0, b"", 20.0))
    client.create("/mine", b"", 1)
    world.run(3.41 - world.now_s)
    assert client.do(SetData("/mine", b"x", -1), 0.05).error_code == 0  # the leader has seen it
    ensemble.cut(0, 2)
    assert _end_of(world, other) < 6.0


def test_a_new_leader_begins_all_sessions_afresh() -> None:
    world = World()
    ensemble = world.ensemble(3, leader=2)
    client = Client(world, ensemble, 0)
    client.create("/mine", b"", 1)
    world.run(3.0)
    ensemble.stop(2)
    world.run(1.0)
    elected_s = world.now_s
    assert ensemble.leader == 1
    assert client.is_hung_up
    other = Client(world, ensemble, 1, Hello(0, b"", 10.0))
    assert elected_s + 3.0 < _end_of(world, other) <= elected_s + 4.6


# -- several simulated servers: order, staleness, moved sessions, lost leaders


def _ensemble(world: World, **options: Any) -> Any:
    return world.ensemble(3, tick_s=0.5, leader=2, **options)


def test_what_only_the_old_leader_has_logged_is_lost() -> None:
    world = World()
    ensemble = _ensemble(world)
    client = Client(world, ensemble, 2)
    ensemble.cut(0, 2)
    ensemble.cut(1, 2)
    client.send(Create("/a", b"", OPEN_ACL_UNSAFE, 0))
    world.run(12.0)
    assert client.is_hung_up
    assert ensemble.leader == 1
    ensemble.heal(0, 2)
    ensemble.heal(1, 2)
    world.run(1.0)
    for number in range(3):
        assert not Client(world, ensemble, number).exists("/a")


def test_what_a_quorum_has_logged_is_kept_although_nobody_was_answered() -> None:
    world = World()
    ensemble = _ensemble(world)
    client = Client(world, ensemble, 2)
    client.send(Create("/a", b"", OPEN_ACL_UNSAFE, 0))
    world.run(0.0021)  # the followers have it, and their acknowledgements are under way
    ensemble.stop(2)
    assert len(client.heard) == 2
    world.run(1.0)
    assert Client(world, ensemble, 0).exists("/a")


def test_a_frozen_leader_is_replaced_and_thaws_with_old_answers_before_it_gives_up() -> None:
    world = World()
    ensemble = _ensemble(world)
    client = Client(world, ensemble, 2, Hello(0, b"", 10.0))
    ensemble.freeze(2)
    world.run(7.0)
    assert ensemble.leader == 1
    Client(world, ensemble, 0).create("/new")
    client.send(Exists("/new", None))
    ensemble.thaw(2)
    assert isinstance(client.heard[-1], ServerAnswer)
    assert client.heard[-1].error_code == -101
    world.run(2.0)
    assert client.is_hung_up
    assert ensemble.is_serving(2)
    assert Client(world, ensemble, 2).exists("/new")
