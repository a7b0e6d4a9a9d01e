"""Coalescing across processes, through ZooKeeper; see
:class:`~leaderq.coalescing.distributed.coordinator.DistributedQueueCoordinator`."""

from __future__ import annotations

from leaderq.coalescing.distributed.coordinator import DistributedQueueCoordinator
from leaderq.coalescing.distributed.token import DistributedToken
from leaderq.coalescing.distributed.view import Holder, KeyView

__all__ = ["DistributedQueueCoordinator", "DistributedToken", "Holder", "KeyView"]
