"""Coalescing across processes, through ZooKeeper: :class:`DistributedQueueCoordinator`."""
