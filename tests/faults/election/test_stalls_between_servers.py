"""Nobody acts beside the next leader, whatever a server has not yet told the servers' leader.

The leader stands beside a follower, the next one beside the servers' leader. Before leases rested
on proofs (``leaderq/zookeeper/proof.py``), half of these rounds failed; other ticks and other
losses are those of simulated lives. What does not ask is ended by its guardian
(``tests/acceptance/running/test_rude_careers.py``).

``LEADERQ_TEST_CHANGES`` is the number of rounds.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from electorate import Electorate, term_of
from terms import is_on

from leaderq import Session
from leaderq.base.clock import now_s
from leaderq.term import OpenTerm
from leaderq.testing import ZooKeeperEnsemble, eventually
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Check

TIMEOUT_S = 4.0
STALL_S = 0.55 * TIMEOUT_S
CHANGES = int(os.environ.get("LEADERQ_TEST_CHANGES", "1"))
SETTINGS = {
    "tickTime": f"{TIMEOUT_S / 6 * 1000:.0f}",
    # who is cut off serves its clients for longer than any session lives
    "initLimit": "60",
    "syncLimit": "60",
    "forceSync": "no",
}
pytestmark = pytest.mark.timeout(120 + 20 * CHANGES)


def lose_a_follower(ensemble: ZooKeeperEnsemble, beside: Session) -> None:
    """Stall the first follower, let it go on, and let the servers' leader hear nothing more of it
    as soon as ``beside``, a session with it, has had a late answer.
    """
    head, follower = ensemble.leader, ensemble.followers[0]
    way = ensemble.link(head, follower)
    way.stall()
    time.sleep(STALL_S / 2)
    late = beside.multi_async([Check("/")])
    time.sleep(STALL_S / 2)
    ensemble.link(follower, head).lose()
    way.release()
    late.result(5 * patience())
    way.cut()


@contextlib.contextmanager
def asking(term: OpenTerm) -> Iterator[list[float]]:
    """Ask a term each 2 ms whether it may act: when it said so."""
    passed_s, is_over = [0.0], threading.Event()

    def ask() -> None:
        while not is_over.wait(0.002):
            asked_s = now_s()
            if is_on(term):
                passed_s.append(asked_s)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    try:
        yield passed_s
    finally:
        is_over.set()
        thread.join()


def overlap_s(ensemble: ZooKeeperEnsemble, root: str) -> float:
    """One stall and loss; for how long ``check()`` passed in the old term beside the new one."""
    eventually(lambda: len(ensemble.followers) == 2)
    head, follower = ensemble.leader, ensemble.followers[0]
    electorate = Electorate(head.address, root)
    with contextlib.closing(electorate), ThreadPoolExecutor(1) as pool:
        a = electorate.candidate("a", address=follower.address, timeout_s=TIMEOUT_S)
        b = electorate.candidate("b", address=head.address)
        with asking(electorate.lead(a)) as passed_s:
            electorate.wait_in_line(b)
            beside = electorate.session(address=follower.address)
            leading = pool.submit(lambda: (term_of(b), now_s()))
            try:
                lose_a_follower(ensemble, beside)
                _, led_s = leading.result()
                time.sleep(TIMEOUT_S / 3)
            finally:
                ensemble.heal()
        return max(0.0, passed_s[-1] - led_s)


def test_check_does_not_pass_beside_the_next_leader():
    with ZooKeeperEnsemble(linked=True, settings=SETTINGS) as ensemble:
        late_s = [overlap_s(ensemble, f"/t-{uuid4().hex}") for _ in range(CHANGES)]
    assert not any(late_s), f"check() passed beside the next leader, {late_s}"
