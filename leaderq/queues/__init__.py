"""ZooKeeper queues on Curator's znodes."""
