"""The ways between the servers of an ensemble; a test can stall, cut and heal each of them.

A server that follows connects to the one that leads, at its *peer* port. With links, each server
gets the address of a fault proxy in place of each other server's peer port. So there are two
proxies between two servers; which of them is used depends on who follows. Elections do not go
through proxies: a server can always notice that another one is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Final

from leaderq.testing.fault_proxy import FaultProxy

WAIT_S: Final = 3.0
"""How many seconds a follower waits for the elected server to listen: as long as it would try again
without a proxy. A proxy that did not wait would end the election, because the proxy accepts before
the server listens.
"""


class ServerLink:
    """The way from one server to another, in this order; *back* is the way of the opposite order.

    Guarantees: when a method returns, its fault is in force. What is stalled arrives late and in
    its order. What is lost ends the connection at :meth:`heal`, not before.
    Not guaranteed: that either server notices. A server that hears nothing for ``syncLimit`` ticks
    gives up.
    """

    def __init__(self, there: FaultProxy, back: FaultProxy) -> None:
        self._there = there
        self._back = back

    def stall(self) -> None:
        """Hold what the first server sends to the second, until :meth:`release` or :meth:`heal`."""
        self._there.freeze_direction("to_server")
        self._back.freeze_direction("to_client")

    def release(self) -> None:
        """Deliver what :meth:`stall` has held; nothing else is healed."""
        self._there.release_direction("to_server")
        self._back.release_direction("to_client")

    def lose(self) -> None:
        """Lose what the first server sends to the second from now on, until :meth:`heal`."""
        self._there.swallow_direction("to_server")
        self._back.swallow_direction("to_client")

    def cut(self) -> None:
        """Lose what both servers send to each other from now on, until :meth:`heal`."""
        self._there.black_hole()
        self._back.black_hole()

    def heal(self) -> None:
        """End all faults both ways: held bytes arrive; a connection that has lost bytes is
        reset.
        """
        self._there.heal()
        self._back.heal()


class ServerLinks:
    """The ways between servers whose peer ports are at ``addresses``."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._ways = {
            (one, other): FaultProxy(addresses[other], framed=False, wait_s=WAIT_S)
            for one, other in permutations(range(len(addresses)), 2)
        }

    def start(self) -> ServerLinks:
        for way in self._ways.values():
            way.start()
        return self

    def address(self, one: int, other: int) -> str:
        """The address at which server ``one`` (by its place) reaches the peer port of server
        ``other``.
        """
        return self._ways[one, other].address

    def between(self, one: int, other: int) -> ServerLink:
        return ServerLink(self._ways[one, other], self._ways[other, one])

    def heal(self) -> None:
        for way in self._ways.values():
            way.heal()

    def stop(self) -> None:
        for way in self._ways.values():
            way.stop()
