"""Curator's wire, pure: how items are named (:mod:`~leaderq.queues.wire.names`) and what a znode
holds (:mod:`~leaderq.queues.wire.payload`). No I/O, no clock.
"""
