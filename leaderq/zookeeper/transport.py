"""What carries a session's requests: where a session takes its client and its ender from.

Ordinarily these are the classes below. A simulation replaces the attributes of this module by
classes with the same faces, which speak to simulated servers; so they are looked up late, by
attribute: ``transport.new_client(...)``. The guardian, a process of its own, makes its
:class:`~leaderq.zookeeper.SessionEnder` itself, without loading kazoo.
"""

from __future__ import annotations

from leaderq.zookeeper.client import Client
from leaderq.zookeeper.ending import SessionEnder

new_client: type[Client] = Client
new_ender: type[SessionEnder] = SessionEnder
