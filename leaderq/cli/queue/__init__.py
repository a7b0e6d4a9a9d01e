"""``leaderq queue``: looking into ZooKeeper queues of any of Curator's recipes, and working on them; one file for each verb."""
