"""The znodes of a key, and what they say: who is the head, who waits, and where that leaves
somebody. Pure.

::

    <root>/<key>~0, <root>/<key>~1  the two slots; data = the name of the token that took the slot
    <root>/<key>~<32 hex digits>    a token, one to each slot that is taken; data = who

All are ephemeral and side by side, because ephemeral znodes have no children: nothing of a key is
left when nobody works on it. A slot and its token are made and deleted together.

The head is whoever's slot is older: of two slots that are taken, the one with the lower ``czxid``.
So the one that waits becomes the head by nothing but the deletion of the other slot, no write of
its own is needed, and a newcomer, whose slot is younger, cannot overtake it. ``czxid`` never falls
while the ensemble lives, and so it is the fencing number too.

``<key>`` is ``s-`` (text) or ``b-`` (bytes) and the key, with every byte but letters, digits,
``.``, ``_`` and ``-`` as ``%XX``: two keys never share a name, and operators can read most of them.
One longer than 160 characters becomes ``S-`` or ``B-``, the SHA-256 of the whole key, and its
beginning.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any
from urllib.parse import quote_from_bytes

from leaderq.coalescing.automaton import TrafficAutomaton, TrafficState
from leaderq.errors import ConfigurationError, LeaderqError, NoNode
from leaderq.zookeeper.paths import join, validated_path

LONGEST = 160
"""Characters of the longest key that stands in a name as it is, encoded."""
_SHOWN = 60
_SAFE = "-._"
_TOKEN = re.compile(r".+~[0-9a-f]{32}")


def encoded(key: str | bytes) -> str:
    """Return a name for ``key``: different keys have different names.

    :raises ConfigurationError: it is neither text nor bytes.
    """
    if isinstance(key, str):
        kind, raw = "s", key.encode("utf-8", "surrogatepass")
    elif isinstance(key, (bytes, bytearray, memoryview)):
        kind, raw = "b", bytes(key)
    else:
        raise ConfigurationError(
            f"key {key!r} is of type {type(key).__name__}; give text or bytes, which mean the same"
            " to every process"
        )
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
        """Those of ``key`` below ``root``."""
        return cls(root, key, encoded(key))

    def slot(self, number: int) -> str:
        """The path of slot 0 or 1."""
        return join(self.root, f"{self.name}~{number}")

    def token(self, name: str) -> str:
        """The path of a token, by the name that stands in its slot."""
        return join(self.root, name)

    def new_token(self) -> str:
        """A name that no token ever had, or will have: what is checked by it is never checked by
        mistake.
        """
        return f"{self.name}~{uuid.uuid4().hex}"

    def owns(self, token: str) -> bool:
        """Whether ``token`` is a token's name of this key."""
        return token.startswith(f"{self.name}~") and _TOKEN.fullmatch(token) is not None


def validated_root(root: str) -> str:
    """``root`` itself.

    :raises ConfigurationError: it is no path, or the root of all znodes.
    """
    if not isinstance(root, str):
        raise ConfigurationError(
            f"root {root!r} is no text; give the path of a znode, such as '/coalescing'"
        )
    if validated_path(root) == "/":
        raise ConfigurationError(
            "root '/' would fill the top of ZooKeeper with slots; give a znode, such as"
            " '/coalescing'"
        )
    return root


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """Who has a slot. ``number``: its fencing number; ``session``: the ZooKeeper session that the
    slot belongs to.
    """

    slot: int
    token: str
    number: int
    session: int


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key at a moment that is over already. ``head`` and ``waiter`` are ``None`` where nobody
    is.
    """

    head: SlotHolder | None
    waiter: SlotHolder | None

    @property
    def state(self) -> TrafficState:
        """Init, Process or Block."""
        return TrafficAutomaton(
            line=[one for one in (self.head, self.waiter) if one is not None]
        ).state


class SlotStanding(Enum):
    """Where somebody stands at a key."""

    HEAD = "head"
    WAITS = "waits"
    OUTSIDE = "outside"
    """It has no slot, and one is free."""
    DECLINED = "declined"
    """It has no slot, and both were taken at one moment."""
    UNCLEAR = "unclear"
    """It has no slot, and the slots changed while they were looked at: nothing is certain, look
    again.
    """


def holder(slot: int, read: Any) -> SlotHolder | None:
    """Who has the slot, from the answer to reading it.

    :raises LeaderqError: it could not be read.
    """
    if isinstance(read, NoNode):
        return None
    if isinstance(read, LeaderqError):
        raise read
    data, stat = read
    return SlotHolder(slot, data.decode("utf-8", "replace"), stat.czxid, stat.ephemeral_owner)


def view(slots: Sequence[SlotHolder | None]) -> KeyView:
    """The key whose slots are these."""
    taken = sorted((one for one in slots if one is not None), key=lambda one: one.number)
    return KeyView(taken[0] if taken else None, taken[1] if len(taken) > 1 else None)


def find(token: str, slots: Sequence[SlotHolder | None]) -> SlotHolder | None:
    """The slot of ``token``, if it has one."""
    return next((one for one in slots if one is not None and one.token == token), None)


def judge(
    token: str, first: SlotHolder | None, second: SlotHolder | None, again: SlotHolder | None
) -> tuple[SlotStanding, int]:
    """Where ``token`` stands, and its slot or the one to try next, from three readings in this
    order: slot 0, slot 1, slot 0 again.

    The readings may be of different moments. Whoever is declined relies on somebody who waits and
    begins later, so that is said only if slot 0 had one and the same owner before and after slot 1
    was read: then both were taken at that moment.
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
    """What stands in a token's znode, for operators; ``begun``: when its run began, if it
    waited.
    """
    what = {"host": host, "pid": pid, "since": round(since, 3)}
    if begun is not None:
        what["begun"] = round(begun, 3)
    return json.dumps(what).encode()


def has_begun(described: bytes) -> bool:
    """Whether a token's znode says that its run began after it had waited."""
    try:
        return "begun" in json.loads(described)
    except (ValueError, TypeError):
        return False
