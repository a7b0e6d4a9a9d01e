"""A znode's metadata, as ZooKeeper reports it."""

from __future__ import annotations

from typing import NamedTuple


class Stat(NamedTuple):
    """A znode's metadata. ``ephemeral_owner`` is the id of the owning session, 0 for a persistent znode.

    ``version`` counts data writes since the znode was created, and starts at 0 again when it is deleted and created anew:
    only ``czxid`` tells two lives of one path apart.
    """

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int
