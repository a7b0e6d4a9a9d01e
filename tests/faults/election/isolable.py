"""An ensemble of which one member can be cut off from the others."""

from __future__ import annotations

from typing import Any

from leaderq.testing import FaultProxy, ZooKeeperEnsemble, ZooKeeperServer
from leaderq.testing.server import all_at_once


class IsolableEnsemble(ZooKeeperEnsemble):
    """The first member is a follower, and fault proxies stand between it and the others, so that
    :meth:`isolate` can cut it off while its clients still reach it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._ways: list[FaultProxy] = []  # from the first member to each other

    def start(self) -> IsolableEnsemble:
        self.prepare()
        first, *others = self.members
        if not self._ways:
            self._ways = [FaultProxy(one.address_of("peer"), framed=False) for one in others]
        for number, (way, other) in enumerate(zip(self._ways, others, strict=True), start=2):
            election = other.address_of("election").rpartition(":")[2]
            first.settings[f"server.{number}"] = f"{way.start().address}:{election}"
        # The one that starts last follows. It would disturb an election: its proxies accept
        # connections before a leader does.
        all_at_once(lambda member: member.start(), others)
        return super().start()

    def isolate(self) -> ZooKeeperServer:
        """Cut the first member off from the others until :meth:`heal`; returns it.

        It goes on answering its clients' pings and reads until ``syncLimit`` ticks have passed.
        """
        for way in self._ways:
            way.black_hole()
        return self.members[0]

    def heal(self) -> None:
        for way in self._ways:
            way.heal()
        super().heal()

    def stop(self, *, keep_data: bool = False) -> None:
        super().stop(keep_data=keep_data)
        for way in self._ways if not keep_data else ():
            way.stop()
