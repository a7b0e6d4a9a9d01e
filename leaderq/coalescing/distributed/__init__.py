"""Coalescing across processes, through ZooKeeper: :class:`DistributedQueueCoordinator`."""

from __future__ import annotations

from leaderq.coalescing.distributed.coordinator import DistributedQueueCoordinator
from leaderq.coalescing.distributed.slots import DistributedToken, KeyView, SlotHolder

__all__ = ["DistributedQueueCoordinator", "DistributedToken", "KeyView", "SlotHolder"]
