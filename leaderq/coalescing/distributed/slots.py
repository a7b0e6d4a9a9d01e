"""The znodes of a key; who is the head and who waits, by what they hold (pure); and the token,
which is the right to work on a key.

::

    <root>/<key>~0, <root>/<key>~1  the two slots; data = the name of the token that took the slot
    <root>/<key>~<32 hex digits>    a token, one to each slot that is taken; data = who

All are ephemeral. A slot and its token are made and deleted together. The head is the owner of the
older slot, by its ``czxid``, which is also the fencing number: ``docs/design/coalescing.md`` says
why.

``<key>`` is ``s-`` (text) or ``b-`` (bytes) and the key, with every byte except letters, digits,
``.``, ``_`` and ``-`` as ``%XX``: two keys never share a name, and operators can read most of them.
One longer than 160 characters becomes ``S-`` or ``B-``, the SHA-256 of the whole key, and its
beginning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any
from urllib.parse import quote_from_bytes

from leaderq.base import chance
from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.errors import ConfigurationError, LeaderqError, NoNode, TokenOver
from leaderq.threads import primitives
from leaderq.zookeeper import Check, Operation, Session
from leaderq.zookeeper.paths import join, validated_path
from leaderq.zookeeper.seat import Seat, SeatLost

LONGEST = 160
"""Characters of the longest encoded key that is used as a name unchanged."""
_SHOWN = 60
_SAFE = "-._"


def encoded(key: str | bytes) -> str:
    """Return a name for ``key``: different keys have different names."""
    if isinstance(key, str):
        kind, raw = "s", key.encode("utf-8", "surrogatepass")
    elif isinstance(key, (bytes, bytearray, memoryview)):
        kind, raw = "b", bytes(key)
    else:
        raise ConfigurationError(f"key {key!r} is of type {type(key).__name__}: give text or bytes")
    name = quote_from_bytes(raw, safe=_SAFE).replace("~", "%7E")
    if len(name) <= LONGEST:
        return f"{kind}-{name}"
    return f"{kind.upper()}-{sha256(raw).hexdigest()}-{name[:_SHOWN]}"


@dataclass(frozen=True, slots=True)
class KeyZnodes:
    """The paths of a key's znodes below ``root``; ``name``: the key, encoded."""

    root: str
    key: str | bytes
    name: str

    @classmethod
    def of(cls, root: str, key: str | bytes) -> KeyZnodes:
        return cls(root, key, encoded(key))

    def slot(self, number: int) -> str:
        return join(self.root, f"{self.name}~{number}")

    def token(self, name: str) -> str:
        return join(self.root, name)

    def new_token(self) -> str:
        """A new name for a token, which no other token ever has."""
        return f"{self.name}~{chance.uuid4().hex}"


def validated_root(root: str) -> str:
    """Return ``root``, unless it is not a path, or the root of all znodes."""
    if type(root) is not str or validated_path(root) == "/":
        raise ConfigurationError(
            f"root={root!r}: give the path of a znode below '/', such as '/coalescing'"
        )
    return root


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """The owner of a slot, with its fencing number and its ZooKeeper session."""

    slot: int
    token: str
    number: int
    session: int


class SlotStanding(Enum):
    """Where a request stands in the line of a key."""

    HEAD = "head"
    WAITS = "waits"
    OUTSIDE = "outside"
    """It has no slot, and one is free."""
    DECLINED = "declined"
    """It has no slot, and both were taken at one moment."""
    UNCLEAR = "unclear"
    """It has no slot, and the slots changed while they were looked at: look again."""


def holder(slot: int, read: Any) -> SlotHolder | None:
    """The owner of the slot, from the answer to reading it."""
    if isinstance(read, NoNode):
        return None
    if isinstance(read, LeaderqError):
        raise read
    data, stat = read
    return SlotHolder(slot, data.decode("utf-8", "replace"), stat.czxid, stat.ephemeral_owner)


def find(token: str, slots: Sequence[SlotHolder | None]) -> SlotHolder | None:
    return next((one for one in slots if one is not None and one.token == token), None)


def judge(
    token: str, first: SlotHolder | None, second: SlotHolder | None, again: SlotHolder | None
) -> tuple[SlotStanding, int]:
    """Return the standing of ``token``, and its slot or the slot to try next. The input are three
    readings, made in this order: slot 0, slot 1, slot 0 again.

    The readings may be of different moments. A declined request relies on a waiter that begins
    later, so it is declined only if slot 0 had one and the same owner before and after slot 1 was
    read: then both were taken at that moment.
    """
    mine = find(token, (first, second, again))
    if mine is not None:
        other = (again, second)[1 - mine.slot]
        return (
            SlotStanding.HEAD if other is None or other.number > mine.number else SlotStanding.WAITS
        ), mine.slot
    if again is None:
        return SlotStanding.OUTSIDE, 0
    if second is None:
        return SlotStanding.OUTSIDE, 1
    if first is not None and first.number == again.number:
        return SlotStanding.DECLINED, 0
    return SlotStanding.UNCLEAR, 0


def described(*, host: str, pid: int, since: float, begun: float | None = None) -> bytes:
    """The data of a token's znode; ``begun``: when its run began, if it waited."""
    what = {"host": host, "pid": pid, "since": round(since, 3)}
    if begun is not None:
        what["begun"] = round(begun, 3)
    return json.dumps(what).encode()


def has_begun(described: bytes) -> bool:
    try:
        return "begun" in json.loads(described)
    except (ValueError, TypeError, RecursionError):
        return False


class TokenEnding(Enum):
    """Why a token is over."""

    DECLINED = "it was declined"
    DEQUEUED = "it was dequeued"
    SESSION = "its ZooKeeper session is over"
    GONE = "its znode is gone: its session is over, or somebody deleted it"
    CLOSED = "its coordinator was closed"


class DistributedToken:
    """The right to work on one key, as long as the token is true: ``if token:``. Returned by
    ``enqueue``.

    ``number`` is the fencing number: of two heads of a key, the later has the higher one; store it
    beside the data and refuse lower ones. ``outcome`` is ACCEPT (at once), BLOCK (after waiting) or
    DECLINE. ``ended`` is a :class:`threading.Event`, set when the token is over.

    *Guarantees:* while :attr:`is_current` is ``True`` no other process is the head of the key. Once
    another process is, :meth:`write` and :meth:`confirm` raise :class:`~leaderq.errors.TokenOver`,
    whatever this process knows, because the servers refuse.
    *Not guaranteed:* that the token is still current after :attr:`is_current` was read; only
    :meth:`write`, or a resource that compares ``number``, closes that gap.

    As a context manager it is dequeued at the end of the block.
    """

    def __init__(
        self,
        session: Session,
        znodes: KeyZnodes,
        holder: SlotHolder | None,
        outcome: EnqueueOutcome,
        *,
        dequeue: Callable[[DistributedToken], object],
    ) -> None:
        self.key = znodes.key
        self.number = 0 if holder is None else holder.number
        self.outcome = outcome
        self.ended = primitives.Event()
        self.holder = holder
        self.owner = primitives.get_ident()
        """The thread that asked."""
        self.znodes = znodes
        self._seat: Seat | None = None
        if holder is not None:
            self._seat = Seat(session, znodes.token(holder.token), holder.session)
        self._dequeue = dequeue
        self._ending: TokenEnding | None = None
        self._lock = primitives.Lock()
        if holder is None:
            self.end(TokenEnding.DECLINED)

    def __bool__(self) -> bool:
        return self.is_current

    def __enter__(self) -> DistributedToken:
        return self

    def __exit__(self, *error: object) -> None:
        self._dequeue(self)

    def __repr__(self) -> str:
        state = "current" if self.is_current else "over" if self.is_over else "in doubt"
        return f"<DistributedToken {self.number} of {self.key!r}, {state}>"

    @property
    def is_current(self) -> bool:
        """Whether this process is certainly the head. Sends no request. It may be true again after
        it was false, unless :attr:`is_over`.
        """
        return self._ending is None and self._seat is not None and self._seat.is_held

    @property
    def is_over(self) -> bool:
        """Whether the token is over for good, as far as this process has heard."""
        return self._ending is not None

    @property
    def fence(self) -> Check:
        """The operation that makes a multi fail if this token is not current.

        :raises TokenOver: the token was declined.
        """
        return self._taken.fence

    @property
    def _taken(self) -> Seat:
        if self._seat is None:
            raise self._over(TokenEnding.DECLINED)
        return self._seat

    def write(
        self, operations: Sequence[Operation], *, timeout_s: float | None = None
    ) -> list[Any]:
        """Carry out all ``operations``, or none if this token is not current; return one result for
        each. The servers decide.

        :raises TokenOver: the token is not current; nothing was written.
        :raises NotConnected: nothing was sent.
        :raises ConnectionLost: it is unknown whether the operations were written.
        :raises ZooKeeperError: ZooKeeper refused an operation; ``index`` is its place in
            ``operations``. Nothing was written.
        """
        if self._ending is not None:
            raise self._over(self._ending)
        try:
            return self._taken.write(operations, timeout_s=timeout_s)
        except SeatLost as exc:
            ending = TokenEnding.SESSION if exc.with_session else TokenEnding.GONE
            raise self._over(ending) from exc

    def confirm(self, *, timeout_s: float | None = None) -> None:
        """Ask the servers; return if this token was current at a moment after the call. Raises what
        :meth:`write` raises.
        """
        self.write([], timeout_s=timeout_s)

    def end(self, ending: TokenEnding) -> bool:
        """End the token; return ``False`` if it was over before. For its coordinator."""
        with self._lock:
            if self._ending is not None:
                return False
            self._ending = ending
        self.ended.set()
        return True

    def _over(self, ending: TokenEnding) -> TokenOver:
        self.end(ending)
        return TokenOver(self.key, number=self.number, reason=(self._ending or ending).value)
