"""One direction of a proxied connection: what becomes of the bytes. Pure: no socket, no thread, the time is given.

ZooKeeper and Kafka both speak in frames of four bytes of length and a body, so a lane can tell one request or reply from the next
and lose exactly one. A stream that is not of this kind (TLS, four-letter words) is passed on as it is, and no rule finds a frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

_LONGEST_FRAME: Final = 64 << 20
_AT_ONCE: Final = 256 << 10
HIGH_WATER: Final = 4 << 20


class Verdict(Enum):
    """What to do with one frame."""

    PASS = "pass"
    LOSE_AND_CUT = "lose and cut"
    LOSE = "lose"
    HOLD = "hold"  # until :meth:`Lane.release`


Judge = Callable[[bytes], Verdict | bytes]
"""What becomes of a frame, given without its length; bytes take its place."""


@dataclass
class Weather:
    """What happens to all traffic of one direction; shared by the lanes of all connections."""

    delay_s: float = 0.0
    is_held: bool = False  # bytes wait in the proxy and are delivered at the end
    is_swallowed: bool = False  # bytes are lost


@dataclass
class Lane:
    """The bytes on their way in one direction.

    ``must_cut`` turns true when a rule wants the connection cut; ``has_lost`` when bytes are gone, so that the stream cannot go on.
    """

    weather: Weather
    judge: Judge
    is_judging: Callable[[], bool]
    is_framed: bool = True
    must_cut: bool = False
    has_lost: bool = False
    _held_frame: bytearray = field(default_factory=bytearray)
    _rest: int = 0  # bytes of a frame begun before, whose start has been passed on already
    _queue: deque[tuple[float, bytes]] = field(default_factory=deque)
    _queued: int = 0
    _held_back: list[bytes] = field(default_factory=list)

    def feed(self, chunk: bytes, *, now: float) -> None:
        """Bytes have come in."""
        if self.weather.is_swallowed or self.must_cut:
            self.has_lost = True
            return
        for piece in self._pieces(chunk):
            self._queue.append((now + self.weather.delay_s, piece))
            self._queued += len(piece)

    def due(self, *, now: float) -> bytes:
        """The bytes to send on now; take off what was sent with :meth:`sent`."""
        if self.weather.is_swallowed and self._queue:
            self.has_lost = True
            self._queue.clear()
            self._queued = 0
        if self.weather.is_held:
            return b""
        pieces, size = [], 0
        for when, piece in self._queue:
            if when > now or size >= _AT_ONCE:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def sent(self, count: int) -> None:
        """The first ``count`` bytes are on their way."""
        self._queued -= count
        while count:
            when, piece = self._queue.popleft()
            if count < len(piece):
                self._queue.appendleft((when, piece[count:]))
            count -= min(count, len(piece))

    def release(self) -> None:
        """Let go what a rule has held, in its order."""
        for frame in self._held_back:
            self._queue.append((0.0, frame))
            self._queued += len(frame)
        self._held_back.clear()

    @property
    def next_due(self) -> float | None:
        """When the first waiting bytes are to be sent, ``None`` if nothing waits for a time."""
        return self._queue[0][0] if self._queue and not self.weather.is_held else None

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._queue

    @property
    def has_room(self) -> bool:
        """Whether more should be read; a held or slow lane must not grow without end."""
        return self._queued < HIGH_WATER

    def _pieces(self, chunk: bytes) -> list[bytes]:
        """Cut ``chunk`` at the frame borders, judge the frames, and give what passes.

        Without a rule bytes pass at once, and only the borders are tracked. With one, a frame waits until it is complete.
        """
        if not self.is_framed:
            return [chunk]
        passed: list[bytes] = []
        data = memoryview(chunk)
        if self._rest:
            take = min(self._rest, len(data))
            passed.append(bytes(data[:take]))
            self._rest -= take
            data = data[take:]
        self._held_frame += data
        while not self._rest and (frame := self._next_frame()):
            self._pass_or_lose(frame, passed)
        if not self.is_judging() and not self.must_cut and len(self._held_frame) >= 4:
            self._rest = self._frame_size() - len(self._held_frame)
            passed.append(bytes(self._held_frame))
            self._held_frame.clear()
        return passed

    def _frame_size(self) -> int:
        return 4 + int.from_bytes(self._held_frame[:4], "big")

    def _next_frame(self) -> bytes:
        if len(self._held_frame) < 4:
            return b""
        size = self._frame_size()
        if size > _LONGEST_FRAME:
            self.is_framed = False
            size = len(self._held_frame)
        if len(self._held_frame) < size:
            return b""
        frame = bytes(self._held_frame[:size])
        del self._held_frame[:size]
        return frame

    def _pass_or_lose(self, frame: bytes, passed: list[bytes]) -> None:
        verdict = self.judge(frame[4:]) if self.is_framed and not self.must_cut else Verdict.PASS
        if isinstance(verdict, bytes):
            frame, verdict = len(verdict).to_bytes(4, "big") + verdict, Verdict.PASS
        if verdict is Verdict.PASS and not self.must_cut:
            passed.append(frame)
            return
        if verdict is Verdict.HOLD:
            self._held_back.append(frame)
            return
        self.has_lost = True
        self.must_cut = self.must_cut or verdict is Verdict.LOSE_AND_CUT
