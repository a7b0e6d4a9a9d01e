"""``leaderq queue``: looking into ZooKeeper queues, Curator's and Dyno's, and working on them."""
