"""How far the numbers of a path have come (pure)."""

from __future__ import annotations

_COUNTER = 2**32


def next_number(cversion: int, num_children: int) -> int:
    """The number that the server will give to the next child: how many were ever created.

    ZooKeeper reports ``cversion`` as twice that, less the children there are, in 32 bits that run over after 2^30 creates; the sum
    undoes both.
    """
    return (cversion + num_children) % _COUNTER // 2
