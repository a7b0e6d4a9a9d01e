"""``leaderq queue``: looks into ZooKeeper queues, Curator's and Dyno's, and works on them."""
