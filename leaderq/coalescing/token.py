"""A request to work on a key, and what has become of it.

A token's stage is changed under the lock of the stripe that its key belongs to, and nowhere else; reading it needs no lock.

    ASKING --+--> RUNNING ----------------+--> ENDED (dequeued)
             |       ^                    +--> EVICTED (ran longer than the safe time-out)
             |       | its turn
             +--> WAITING -----------------+--> DECLINED (replaced by a newer one)
             |                             +--> WITHDRAWN (gave up: time-out, interrupt, cancellation)
             |                             +--> ABANDONED (the coordinator was closed)
             +--> DECLINED
             +--> FOLLOWING (declined, and wants the result of the run that covers it) --+--> SHARED
                                                                                         +--> ORPHANED (there is no result:
                                                                                         ask again) +--> WITHDRAWN, ABANDONED
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from leaderq.coalescing.outcome import Outcome, Refusal

if TYPE_CHECKING:
    from leaderq.coalescing.bells import Bell
    from leaderq.coalescing.results import Result
    from leaderq.coalescing.stripe import Stripe

Key = TypeVar("Key")


class Stage(Enum):
    """See the module."""

    ASKING = "asking"
    WAITING = "waiting"
    FOLLOWING = "following"
    RUNNING = "running"
    ENDED = "ended"
    EVICTED = "evicted"
    DECLINED = "declined"
    SHARED = "shared"
    ORPHANED = "orphaned"
    WITHDRAWN = "withdrawn"
    ABANDONED = "abandoned"

    @property
    def is_pending(self) -> bool:
        """Whether something is still to be heard."""
        return self in _PENDING


_PENDING = frozenset({Stage.ASKING, Stage.WAITING, Stage.FOLLOWING})
_ASKING, _RUNNING = Stage.ASKING, Stage.RUNNING


class Token(Generic[Key]):
    """The right to work on ``key``, if and as long as it is true: ``if token:``.

    ``bool(token)`` and ``is_current`` say the same: this request is the one that runs, now. A declined token is false from
    the beginning, one that was evicted becomes so.
    """

    # Made for every request, so what few of them need is kept where it costs nothing until then: in a __dict__, with defaults here.
    __slots__ = ("__dict__", "key", "number", "owner", "stage", "stripe", "value")

    bell: Bell | None = None
    refusal: Refusal | None = None
    """Why it was declined."""
    covers: int = 0
    """How many requests were declined because this one waited: it runs for them too."""
    began_s: float = 0.0
    """When the run began, on the coordinator's clock; kept with a safe time-out only."""
    follows: bool = False
    """Whether it wants, if declined, the result of the run that covers it."""
    followers: list[Token[Key]] | None = None
    result: Result | None = None
    on_evicted: Callable[[Token[Key]], object] | None = None
    """Set it to be called, with the token, if the run outlives the safe time-out; by whichever thread notices. Look at the token
    afterwards: it may have been evicted before."""

    def __init__(self, key: Key, value: Any, owner: object, stripe: Stripe[Key]) -> None:
        self.key = key
        self.value = value
        """What the caller gave with the request; with a merging overflow, merged with the values of those declined since."""
        self.owner = owner
        """Who asked: a thread's number, a task, whatever was given, or ``None``: see ``WouldDeadlock``."""
        self.stripe = stripe
        self.stage = _ASKING
        self.number = 0
        """Of the run, once it began: rises from run to run of a key as long as the coordinator lives, so that a resource can
        refuse an older one."""

    @property
    def outcome(self) -> Outcome:
        """What was answered: ACCEPT (ran at once), BLOCK (waits, or waited and then ran), or DECLINE."""
        if self.refusal is not None:
            return Outcome.DECLINE
        return Outcome.ACCEPT if self.bell is None else Outcome.BLOCK

    @property
    def is_current(self) -> bool:
        """Whether this request is the one that may work on the key now."""
        return self.stage is _RUNNING

    @property
    def is_unfinished(self) -> bool:
        """Whether it runs, or something is still to be heard of it."""
        return self.stage is _RUNNING or self.stage.is_pending

    def __bool__(self) -> bool:
        return self.stage is _RUNNING

    def __repr__(self) -> str:
        number = f" {self.number}" if self.number else ""
        return f"<Token{number} of {self.key!r}: {self.stage.value}>"
