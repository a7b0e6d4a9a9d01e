"""One direction of a proxied connection: what becomes of the bytes. Pure: no socket, no thread, the
time is given.

ZooKeeper and Kafka both speak in frames of four bytes of length and a body, so a lane can tell one
request or reply from the next and lose exactly one. A stream that is not of this kind (TLS,
four-letter words) is passed on as it is, and no rule finds a frame.

Rules say which requests are lost, and which replies lost, held or falsified. Used by the proxy's
thread only, except that all threads may read ``dropped``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

Request = Callable[[bytes], bool]
ReplyId = tuple[object, bytes]  # the connection, and the bytes that the reply begins with


class ReplyRules:
    """At most one rule of each kind, for all connections.

    A new rule takes the place of the old one of its kind.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.forget()

    @property
    def are_armed(self) -> bool:
        """Whether frames must be looked at."""
        losing = self._left > 0 or any((self._wanted, self._request, self._awaiting))
        return losing or any((self._unheard, self._hold, self._lag, self._stale))

    def forget(self) -> None:
        """Lose, hold and falsify nothing any more."""
        self._forget_losses()
        self._unheard: Request | None = None
        self._hold: Request | None = None
        self._held: set[ReplyId] = set()
        self._holding: set[object] = set()  # connections of which a reply is held
        self._lag: Request | None = None
        self._first: ReplyId | None = None
        self._past: bytes | None = None
        self._stale: ReplyId | None = None

    def _forget_losses(self) -> None:
        self._left = 0
        self._cut = True
        self._wanted: Callable[[bytes], bool] | None = None
        self._request: Request | None = None
        self._id_at = 0
        self._awaiting: ReplyId | None = None  # of the reply to lose

    def drop(self, which: int | Callable[[bytes], bool], *, cut: bool = True) -> None:
        """Lose the next ``which`` replies, or the first that ``which`` is true of."""
        self._forget_losses()
        self._cut = cut
        if callable(which):
            self._wanted = which
        else:
            self._left = which

    def drop_reply_to(self, request: Request, id_at: int) -> None:
        """Lose the reply to the first request that ``request`` is true of."""
        self._forget_losses()
        self._request, self._id_at = request, id_at

    def drop_requests(self, request: Request) -> None:
        """Lose all requests that ``request`` is true of."""
        self._unheard = request

    def hold_replies_to(self, request: Request) -> None:
        """Hold the replies to all requests that ``request`` is true of, and those behind them."""
        self._hold = request

    def answer_from_the_past(self, request: Request) -> None:
        """Answer the second such request as the first one was."""
        self._lag, self._first, self._past, self._stale = request, None, None, None

    def for_connection(self) -> tuple[Judge, Judge]:
        """The judges of one connection's requests and replies."""
        connection = object()

        def judge_request(body: bytes) -> LaneDecision:
            if self._unheard is not None and self._unheard(body):
                return LaneDecision.LOSE_AND_CUT
            if self._request is not None and self._request(body):
                self._awaiting = (connection, body[self._id_at : self._id_at + 4])
                self._request = None
            if self._hold is not None and self._hold(body):
                self._held.add((connection, body[:4]))
            if self._lag is not None and self._lag(body):
                self._note_lag((connection, body[:4]))
            return LaneDecision.PASS

        def judge_reply(body: bytes) -> LaneDecision | bytes:
            reply = (connection, body[:4])
            if self._is_lost(reply, body):
                return (
                    LaneDecision.LOSE_AND_CUT if self._cut and not self._left else LaneDecision.LOSE
                )
            if self._is_held(reply):
                return LaneDecision.HOLD
            return self._as_of_old(reply, body) or LaneDecision.PASS

        return judge_request, judge_reply

    def _is_lost(self, reply: ReplyId, body: bytes) -> bool:
        if self._left > 0:
            self._left -= 1
        elif (self._wanted is not None and self._wanted(body)) or self._awaiting == reply:
            self._wanted = self._awaiting = None
        else:
            return False
        self.dropped += 1
        return True

    def _is_held(self, reply: ReplyId) -> bool:
        if reply in self._held:
            self._holding.add(reply[0])
        # A ZooKeeper server answers in order, so what comes behind a held reply waits as well.
        # Pings and watch events are not answers, and have negative numbers.
        return reply[0] in self._holding and reply[1][0] < 0x80

    def _note_lag(self, reply: ReplyId) -> None:
        if self._past is None:
            self._first = reply
        else:
            self._lag, self._stale = None, reply

    def _as_of_old(self, reply: ReplyId, body: bytes) -> bytes | None:
        if reply == self._first:
            self._first, self._past = None, body
        elif reply == self._stale and self._past is not None:
            old, self._stale, self._past = self._past, None, None
            return body[:4] + old[4:]
        return None


_LONGEST_FRAME: Final = 64 << 20
_AT_ONCE: Final = 256 << 10
HIGH_WATER: Final = 4 << 20


class LaneDecision(Enum):
    """What to do with one frame."""

    PASS = "pass"
    LOSE_AND_CUT = "lose and cut"
    LOSE = "lose"
    HOLD = "hold"  # until :meth:`Lane.release`


Judge = Callable[[bytes], LaneDecision | bytes]
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

    ``must_cut`` turns true when a rule wants the connection cut; ``has_lost`` when bytes are gone,
    so that the stream cannot go on.
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

        Without a rule bytes pass at once, and only the borders are tracked. With one, a frame waits
        until it is complete.
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
        verdict = (
            self.judge(frame[4:]) if self.is_framed and not self.must_cut else LaneDecision.PASS
        )
        if isinstance(verdict, bytes):
            frame, verdict = len(verdict).to_bytes(4, "big") + verdict, LaneDecision.PASS
        if verdict is LaneDecision.PASS and not self.must_cut:
            passed.append(frame)
            return
        if verdict is LaneDecision.HOLD:
            self._held_back.append(frame)
            return
        self.has_lost = True
        self.must_cut = self.must_cut or verdict is LaneDecision.LOSE_AND_CUT
