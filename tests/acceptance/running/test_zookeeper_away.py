"""ZooKeeper goes away and comes back: the work pauses, then ends with the lease, and begins again
by itself.
"""

from __future__ import annotations

from leaderq.testing import eventually

RECORDER = "recorder:Recorder"


def leading(candidate, **more):
    return candidate.wait_for("stage_began", stage="execution", **more)


def test_a_restart_within_the_lease_pauses_the_work_and_keeps_the_term(
    start, zookeeper_server, history
):
    a = start(RECORDER, id="a", session_timeout_s=60)
    leading(a)
    zookeeper_server.kill()
    a.wait_for("work_paused")
    zookeeper_server.start()
    a.wait_for("work_resumed")
    believed = len(history.lines("believed", term=1))
    eventually(lambda: len(history.lines("believed", term=1)) > believed)
    assert not a.said("term_ending")


def test_without_zookeeper_the_leader_hands_over_at_the_end_of_its_lease_and_leads_again_afterwards(
    start, zookeeper_server, history
):
    a = start(RECORDER, id="a", session_timeout_s=6)
    leading(a)
    zookeeper_server.kill()
    a.wait_for("work_paused")
    a.wait_for("term_ending", reason="lease")
    eventually(lambda: history.lines("handOver", reason="lease"))
    zookeeper_server.start()
    leading(a, count=2)
    assert history.overlap_s() < 0


def test_the_loss_of_one_server_of_three_costs_no_term(start, zookeeper_ensemble):
    a = start(RECORDER, id="a", zookeeper=zookeeper_ensemble.address, session_timeout_s=60)
    leading(a)
    zookeeper_ensemble.leader.kill()
    a.wait_for("work_paused")
    a.wait_for("work_resumed", timeout_s=60)
    assert not a.said("term_ending")
