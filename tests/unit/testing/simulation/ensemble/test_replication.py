"""Several simulated servers: order, staleness, moved sessions, lost leaders."""

from __future__ import annotations

from typing import Any

from ensemble_world import Client, World
from kazoo.protocol.serialization import Create, Exists
from kazoo.security import OPEN_ACL_UNSAFE

from leaderq.testing.simulation.ensemble import Hello, ServerAnswer


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
