"""A rule for a fault proxy before ZooKeeper: replies that are held."""

from __future__ import annotations

from leaderq.testing.fault_proxy import FrameTest, LaneDecision, Rule


class HoldRepliesTo(Rule):
    """Holds the replies to all requests that ``is_wanted`` is true of, as a server without its
    quorum does to writes.

    A server answers each connection in order: what comes behind a held reply is held too, except
    pings and watch events, which are not answers and have negative numbers.
    """

    def __init__(self, is_wanted: FrameTest) -> None:
        self._is_wanted = is_wanted
        self._held: set[tuple[object, bytes]] = set()
        self._holding: set[object] = set()

    def request(self, connection: object, body: bytes) -> LaneDecision | bytes:
        if self._is_wanted(body):
            self._held.add((connection, body[:4]))
        return LaneDecision.PASS

    def reply(self, connection: object, body: bytes) -> LaneDecision | bytes:
        if (connection, body[:4]) in self._held:
            self._holding.add(connection)
        is_held = connection in self._holding and body[:1] < b"\x80"
        return LaneDecision.HOLD if is_held else LaneDecision.PASS
