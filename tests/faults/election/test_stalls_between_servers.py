"""Nobody acts beside the next leader, whatever a server has not yet told the servers' leader.

The leader stands beside a follower, the next one beside the servers' leader. Before leases rested
on proofs (``leaderq/zookeeper/proof.py``), half of these rounds failed.

``LEADERQ_TEST_CHANGES`` is the number of careers of each case, five at a time where that will do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from contests import (
    Loss,
    Servers,
    effects_after_stall,
    overlaps,
)

CAREERS = int(os.environ.get("LEADERQ_TEST_CHANGES", "1"))
AT_ONCE = 5


def in_long(*values: object) -> Any:
    """A case that only ``make test-long`` runs, or all tests of this file."""
    return pytest.param(*values, marks=pytest.mark.long)


LOSSES = pytest.mark.parametrize(
    "loss", [Loss.DEAF_HEAD, in_long(Loss.STOPPED)], ids=lambda loss: loss.name.lower()
)
pytestmark = pytest.mark.timeout(120 + 20 * CAREERS)


@pytest.fixture(scope="module", params=[6, in_long(3), in_long(12)], ids="T of {} ticks".format)
def servers(request) -> Iterator[Servers]:
    with Servers(request.param) as made:
        yield made


def in_rounds(what: str, one_round: Callable[[int], Sequence[float]]) -> list[float]:
    """What all careers gave, printed as well; ``one_round`` is given how many it has."""
    found: list[float] = []
    while len(found) < CAREERS:
        found += one_round(min(CAREERS - len(found), AT_ONCE))
        late = [f"{one:.3g}" for one in found if one]
        print(f"{what}: {len(late)} of {len(found)} late {' '.join(late)}", flush=True)
    return found


@LOSSES
def test_check_does_not_pass_beside_the_next_leader(servers, loss) -> None:
    found = in_rounds(
        f"check, {servers.ticks} ticks, {loss.name}",
        lambda careers: overlaps(servers, f"/t-{uuid4().hex}", loss, careers),
    )
    assert not any(found), f"check() passed beside the next leader, seconds: {found}"


@LOSSES
def test_work_that_never_asks_is_dead_before_the_next_leader_begins(
    servers, loss, tmp_path
) -> None:
    found = in_rounds(
        f"work, {servers.ticks} ticks, {loss.name}",
        lambda careers: effects_after_stall(servers, tmp_path, loss, careers),
    )
    assert not any(found), f"effects beside the next leader: {found}"
