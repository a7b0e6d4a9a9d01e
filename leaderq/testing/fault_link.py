"""One proxied connection: two sockets, two lanes. Used by the proxy's thread only."""

from __future__ import annotations

import errno
import selectors
import socket
import struct
from dataclasses import dataclass
from typing import Final

from leaderq.testing.fault_lane import Lane

_READ_SIZE: Final = 1 << 16
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass
class Side:
    """One socket of a link, the lane that it feeds and the lane that it drains."""

    sock: socket.socket
    feeds: Lane
    drains: Lane
    is_connected: bool = True
    has_ended: bool = False  # nothing more comes from it
    is_told: bool = False  # it was told that nothing more comes
    is_gone: bool = False  # its socket is closed

    def close(self, *, reset: bool) -> None:
        """Close the socket, with a reset or an orderly end."""
        if not self.is_gone:
            if reset:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.sock.close()
            self.is_gone = self.has_ended = True


class Link:
    """A client's connection and the one made to the server on its behalf.

    While bytes are swallowed or held, the end of one side is not told to the other: a network that is cut tells nobody anything.
    """

    def __init__(self, client: socket.socket, upstream: tuple[str, int], to_server: Lane, to_client: Lane) -> None:
        self._upstream = upstream
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client = Side(client, feeds=to_server, drains=to_client)
        self.server: Side | None = None
        self.is_over = False

    @property
    def _sides(self) -> list[Side]:
        return [self.client] if self.server is None else [self.client, self.server]

    @property
    def _lanes(self) -> tuple[Lane, Lane]:
        return self.client.feeds, self.client.drains

    def serve(self, ready: dict[socket.socket, int], *, now: float) -> None:
        """Read and write what can be; ``ready`` are the sockets with something to do."""
        if self.is_over:  # cut by an order of this very round: nothing may be opened for it any more
            return
        if self.server is None and not self._lanes[0].weather.is_swallowed:
            self._connect()
        for side in self._sides:
            mask = 0 if side.is_gone else ready.get(side.sock, 0)
            if mask & selectors.EVENT_WRITE and not side.is_connected:
                self._connected(side)
            if mask & selectors.EVENT_READ and not side.is_gone:
                self._read(side, now=now)
        for side in self._sides:
            self._write(side, now=now)
        self._pass_on_ends()

    def wishes(self, *, now: float) -> dict[socket.socket, int]:
        """Which events of which sockets are waited for."""
        wishes = {}
        for side in self._sides:
            mask = 0
            if not side.is_gone and side.is_connected and not side.has_ended and side.feeds.has_room:
                mask |= selectors.EVENT_READ
            if not side.is_gone and (not side.is_connected or side.drains.due(now=now)):
                mask |= selectors.EVENT_WRITE
            if mask:
                wishes[side.sock] = mask
        return wishes

    def next_due(self, *, now: float) -> float | None:
        """When delayed bytes become due; what is due already waits for its socket, not for a time."""
        times = [lane.next_due for lane in self._lanes]
        return min((time for time in times if time is not None and time > now), default=None)

    def cut(self, *, reset: bool = True) -> None:
        """End it now, on both sides; what is on its way is lost."""
        for side in self._sides:
            side.close(reset=reset)
        self.is_over = True

    def heal(self) -> None:
        """The fault is over: go on if no byte was lost, else end."""
        if any(lane.has_lost for lane in self._lanes) or self.client.is_gone:
            self.cut()
            return
        for lane in self._lanes:
            lane.release()

    def _connect(self) -> None:
        to_server, to_client = self._lanes
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server = Side(sock, feeds=to_client, drains=to_server, is_connected=False)
        if sock.connect_ex(self._upstream) not in (0, errno.EINPROGRESS):
            self.cut()

    def _connected(self, side: Side) -> None:
        if side.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.cut()
        else:
            side.is_connected = True

    def _read(self, side: Side, *, now: float) -> None:
        try:
            chunk = side.sock.recv(_READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            self._broken(side)
            return
        if chunk:
            side.feeds.feed(chunk, now=now)
        else:
            side.has_ended = True

    def _write(self, side: Side, *, now: float) -> None:
        data = b"" if side.is_gone or not side.is_connected else side.drains.due(now=now)
        if not data:
            return
        try:
            side.drains.sent(side.sock.send(data))
        except BlockingIOError:
            return
        except OSError:
            self._broken(side)

    def _broken(self, side: Side) -> None:
        if side.feeds.weather.is_swallowed or side.feeds.weather.is_held:
            side.close(reset=True)
        else:
            self.cut()

    def _pass_on_ends(self) -> None:
        if self.is_over or self.server is None:
            return
        if any(lane.must_cut and lane.is_empty for lane in self._lanes):
            # Orderly, for a reset could also destroy the replies before the lost one that the client has not read yet.
            self.cut(reset=False)
            return
        for side, other in ((self.client, self.server), (self.server, self.client)):
            silent = side.feeds.weather.is_swallowed or side.feeds.weather.is_held
            if side.has_ended and not other.is_told and not silent and side.feeds.is_empty and other.is_connected:
                self._tell_end(other)
        if all(side.is_told or side.is_gone for side in self._sides):
            self.cut(reset=False)

    def _tell_end(self, side: Side) -> None:
        side.is_told = True
        if not side.is_gone:
            try:
                side.sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._broken(side)
