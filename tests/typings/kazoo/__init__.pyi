"""Stubs of the parts of kazoo 2.11 that leaderq.zookeeper uses, private ones included."""
