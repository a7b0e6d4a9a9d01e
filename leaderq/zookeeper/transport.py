"""The two classes that sessions are built on, as attributes that can be replaced.

A simulation replaces them by clients of its own servers; so always look them up here:
``transport.new_client(...)``.
"""

from __future__ import annotations

from leaderq.zookeeper.client import Client
from leaderq.zookeeper.ending import SessionEnder

new_client = Client
"""Makes the client of a session; see :class:`leaderq.zookeeper.client.Client`."""

new_ender = SessionEnder
"""Makes what ends sessions from outside; see :class:`leaderq.zookeeper.ending.SessionEnder`."""
