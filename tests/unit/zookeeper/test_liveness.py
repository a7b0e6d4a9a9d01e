from __future__ import annotations

from leaderq.zookeeper.connection import Liveness, connect_limit_s

T = 6.0


def test_a_peer_that_owes_nothing_is_never_silent() -> None:
    assert not Liveness(T, 0.0).is_dead(100.0)


def test_a_peer_that_owes_an_answer_is_dead_after_two_thirds_of_the_time_out() -> None:
    liveness = Liveness(T, 0.0)
    liveness.sent(0.1)
    liveness.sent(3.0)
    assert not liveness.is_dead(4.0)
    assert liveness.is_dead(4.01)


def test_every_sign_of_life_starts_the_count_again() -> None:
    liveness = Liveness(T, 0.0)
    liveness.sent(0.1)
    liveness.heard(3.9, still_waiting=True)
    assert not liveness.is_dead(7.8)
    assert liveness.is_dead(8.0)


def test_a_peer_asked_only_now_is_given_a_third_of_the_time_out_however_long_we_were_away() -> None:
    liveness = Liveness(T, 0.0)
    liveness.heard(1.0, still_waiting=False)
    liveness.sent(50.0)  # we were stopped for a minute, with nothing asked
    assert not liveness.is_dead(51.9)
    assert liveness.is_dead(52.1)


def test_all_servers_are_tried_within_a_third_of_the_time_out_but_none_below_the_floor() -> None:
    assert connect_limit_s(6.0, 1) == 2.0
    assert connect_limit_s(9.0, 3) == 1.0
    assert connect_limit_s(4.0, 5) == 0.5
    assert connect_limit_s(9.0, 0) == 3.0
