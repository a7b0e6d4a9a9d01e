"""How the keys of a stream repeat, in one pass and bounded memory (pure).

The requests of a stream are numbered in their order. Where the request ``j`` is the next one after ``i`` with the same
key, ``j`` is a *repeat*, and ``j - i`` is its **repeat distance**: 1 if they follow each other directly. The **minimum
repeat distance** of a stream is the smallest of all: as long as no more requests than that are in hand at a time, no two
of one key are.

A repeat is **near** if its distance is at most ``window``, which stands for the number of requests in hand at a time:
those that come while one is worked on. Only near repeats can be coalesced. The **duplication class** of a stream is

=========  =================================================================================================================
none       no key repeats
sparse     keys repeat, but near repeats are less than ``high_share`` (5 %) of the requests: coalescing does no harm, and little good
high       near repeats are that share or more: coalescing pays
=========  =================================================================================================================

It is told by the share and not by the minimum distance, for which one pair in a million requests is enough.

Memory: the ``memory`` keys seen last, some 200 bytes and the key each; longer keys than 64 characters are kept as a hash
of 16 bytes. A repeat with fewer than ``memory`` other keys in between is seen, so every distance up to ``memory`` is
exact, and so is the minimum if it is not larger. What is forgotten is counted: 0 means that all figures are exact.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b

from leaderq.errors import ConfigurationError

MEMORY = 100_000
WINDOW = 100
HIGH_SHARE = 0.05
_LONG = 64


class Duplication(Enum):
    """The duplication class; see the module."""

    NONE = "none"
    SPARSE = "sparse"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Repeats:
    """What a :class:`RepeatMeter` has seen. ``minimum_distance`` is ``None`` if no key repeats.

    ``distances``: how many repeats have a distance of up to 1, 2, 4, 8...; each is counted once, at the first bound that
    holds it. ``hottest``: the keys that came most often, with how often (long ones as they were shortened).
    ``forgotten``: how many keys were; unless 0, ``keys`` may count a key twice, and ``hottest`` be too low.
    """

    requests: int
    keys: int
    repeats: int
    near: int
    window: int
    minimum_distance: int | None
    distances: dict[int, int]
    hottest: tuple[tuple[str, int], ...]
    forgotten: int
    duplication: Duplication

    @property
    def near_share(self) -> float:
        """Near repeats per request."""
        return self.near / self.requests if self.requests else 0.0


class RepeatMeter:
    """Measures a stream; see the module.

    :raises ConfigurationError: ``window`` or ``memory`` is below 1, or ``memory`` below ``window``.
    """

    def __init__(self, *, window: int = WINDOW, memory: int = MEMORY, high_share: float = HIGH_SHARE) -> None:
        problems = [
            f"{name}={value!r}: give 1 or more" for name, value in (("window", window), ("memory", memory)) if value < 1
        ]
        if memory < window:
            problems.append(f"memory={memory!r} is less than window={window!r}: repeats within the window would be missed")
        if problems:
            raise ConfigurationError(*problems)
        self._window = window
        self._memory = memory
        self._high_share = high_share
        self._seen: OrderedDict[str | bytes, tuple[int, int]] = OrderedDict()
        self._names: dict[bytes, str] = {}
        self._requests = 0
        self._keys = 0
        self._repeats = 0
        self._near = 0
        self._minimum: int | None = None
        self._distances: dict[int, int] = {}

    def note(self, key: str) -> None:
        """The next request of the stream."""
        self._requests += 1
        known = key if len(key) <= _LONG else self._shortened(key)
        found = self._seen.get(known)
        if found is None:
            self._keys += 1
            self._seen[known] = (self._requests, 1)
            self._forget()
            return
        last, count = found
        self._seen[known] = (self._requests, count + 1)
        self._seen.move_to_end(known)
        self._note_distance(self._requests - last)

    def _note_distance(self, distance: int) -> None:
        self._repeats += 1
        self._near += distance <= self._window
        if self._minimum is None or distance < self._minimum:
            self._minimum = distance
        bound = 1 << (distance - 1).bit_length()
        self._distances[bound] = self._distances.get(bound, 0) + 1

    def _shortened(self, key: str) -> bytes:
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        self._names.setdefault(digest, f"{key[:_LONG]}...")
        return digest

    def _forget(self) -> None:
        if len(self._seen) > self._memory:
            key, _ = self._seen.popitem(last=False)
            if isinstance(key, bytes):
                self._names.pop(key, None)

    def result(self, hottest: int = 5) -> Repeats:
        """What was seen so far, with so many of the hottest keys."""
        top = sorted(self._seen.items(), key=lambda one: -one[1][1])[:hottest]
        return Repeats(
            requests=self._requests,
            keys=self._keys,
            repeats=self._repeats,
            near=self._near,
            window=self._window,
            minimum_distance=self._minimum,
            distances=dict(sorted(self._distances.items())),
            hottest=tuple((self._names[key] if isinstance(key, bytes) else key, count) for key, (_, count) in top),
            forgotten=self._keys - len(self._seen),
            duplication=self._duplication(),
        )

    def _duplication(self) -> Duplication:
        return classified(self._repeats, self._near, self._requests, self._high_share)


def classified(repeats: int, near: int, requests: int, high_share: float = HIGH_SHARE) -> Duplication:
    """The duplication class of ``requests``, of which so many are repeats, and so many near ones."""
    if not repeats:
        return Duplication.NONE
    return Duplication.HIGH if near >= high_share * requests else Duplication.SPARSE
