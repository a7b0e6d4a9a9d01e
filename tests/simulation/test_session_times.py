from __future__ import annotations

import pytest
from kazoo.protocol.serialization import Create, PingInstance
from kazoo.security import OPEN_ACL_UNSAFE

from leaderq.testing.simulation.ensemble import Hello, Hungup
from simulation.scenarios import scene


@pytest.mark.parametrize(("began_s", "ends_s"), [(0.0, 4.5), (0.45, 4.5), (0.55, 5.0), (1.2, 5.5)])
@scene(1, tick_s=0.5)
def test_a_session_ends_at_the_tick_after_its_timeout(s, began_s, ends_s):
    heard: list[object] = []
    s.run(began_s)
    s.ensemble.connect(0, Hello(0, b"", 4.0), heard.append)
    s.run(ends_s - s.now_s - 0.01)
    assert Hungup() not in heard
    s.run(0.02)
    assert heard[-1] == Hungup()


@pytest.mark.parametrize(("cut_s", "ends_s"), [(3.45, 6.0), (3.6, 8.0)])
@scene(1, servers=3, tick_s=1.0)
def test_the_leader_learns_of_a_followers_clients_only_when_it_pings(s, cut_s, ends_s):
    client = s.ensemble.connect(0, Hello(0, b"", 4.0), lambda _: None)
    client.send(1, Create("/mine", b"", OPEN_ACL_UNSAFE, 1))
    s.run(3.4)
    client.send(2, PingInstance)  # the leader hears of it with its ping at 3.5
    s.run(cut_s - s.now_s)
    assert "/mine" in s.cluster.znodes()
    s.ensemble.cut(0, 2)
    s.until(lambda: "/mine" not in s.cluster.znodes())
    assert ends_s - 1.1 < s.now_s < ends_s + 0.1
