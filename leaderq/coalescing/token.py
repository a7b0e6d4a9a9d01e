"""A request to work on a key, and what has become of it.

A token's stage is changed only under the lock of its coordinator; to read it no lock is needed.

    ASKING --+--> RUNNING ----------+--> ENDED (dequeued)
             |       ^ its turn     +--> EVICTED (ran longer than the safe time-out)
             +--> WAITING ----------+--> WITHDRAWN (gave up: time-out, interrupt, cancellation)
             |                      +--> ABANDONED (the coordinator was closed)
             +--> DECLINED
             +--> FOLLOWING --------+--> SHARED (with the result of the run that covers it)
              (declined, and wants  +--> ORPHANED (there is no result: it asks again)
               that run's result)   +--> WITHDRAWN, ABANDONED
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, Generic

from leaderq.base.arguments import require_finished
from leaderq.coalescing.automaton import EnqueueOutcome

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # of type checkers: QueueCoordinator() takes any key

    Key = TypeVar("Key", default=Any)
else:
    from typing import TypeVar

    Key = TypeVar("Key")


class TokenStage(Enum):
    """The stage of a token; see the picture in the module."""

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
        return self in _PENDING


def require_done(returned: object, what: str) -> None:
    """Refuse ``returned`` if it is work that nobody will do. A future or a task is allowed, because
    somebody does its work.

    :raises NotAPlainFunction: ``what`` returned a coroutine or a generator.
    """
    if isinstance(returned, (CoroutineType, GeneratorType, AsyncGeneratorType)):
        require_finished(returned, what)


_PENDING = (TokenStage.ASKING, TokenStage.WAITING, TokenStage.FOLLOWING)
_ASKING, _RUNNING = TokenStage.ASKING, TokenStage.RUNNING


@dataclass(slots=True)
class RunResult:
    """What a run returned, or the error that it raised. Several requests share it, so it does not
    change.
    """

    value: Any = None
    error: Exception | None = None
    traceback: TracebackType | None = None
    """The traceback of the run: each who raises the error extends the error's own."""

    @classmethod
    def of(cls, function: Callable[[], Any]) -> RunResult:
        """Call ``function`` and return the result. An interrupt, an exit or a cancellation is
        raised instead, because it is not shared.
        """
        try:
            value = function()
            require_done(value, "the function of a run")
            return cls(value)
        except Exception as exc:  # noqa: BLE001 - it is raised to everybody who shares the run
            return cls(None, exc, exc.__traceback__)

    @classmethod
    async def of_awaited(cls, function: Callable[[], Awaitable[Any]]) -> RunResult:
        try:
            return cls(await function())
        except Exception as exc:  # noqa: BLE001 - it is raised to everybody who shares the run
            return cls(None, exc, exc.__traceback__)

    def get(self) -> Any:
        """Return the value, or raise the error. All callers get the same object."""
        if self.error is None:
            return self.value
        raise self.error.with_traceback(self.traceback)


class Token(Generic[Key]):
    """The right to work on ``key``, as long as the token is true: ``if token:``.

    ``bool(token)`` and ``is_current`` say the same: this request is the one that runs now. A
    declined token is false from the beginning; a token that is evicted becomes false.
    """

    # One is made for every request, so rarely used attributes are in a __dict__, with defaults
    # here.
    __slots__ = ("__dict__", "key", "number", "owner", "stage")

    wake: Callable[[Token[Key]], object] | None = None
    """Called with the token, without a lock, once it is no longer pending."""
    repeat: Callable[[Token[Key]], object] | None = None
    """Does its work with the token passed to it, for the requests it covers, if it gives up."""
    is_cover: bool = False
    """Whether it was made for requests whose waiter gave up."""
    has_waited: bool = False
    is_declined: bool = False
    covers: int = 0
    """How many requests were declined because this one waited: it runs for them too."""
    began_s: float = 0.0
    """When the run began; kept with a safe time-out only."""
    follows: bool = False
    """Whether it wants, if declined, the result of the run that covers it."""
    followers: tuple[Token[Key], ...] = ()
    result: RunResult | None = None

    def __init__(self, key: Key, owner: object) -> None:
        self.key = key
        self.owner = owner
        """Who asked: a thread's number, a task's reference, the owner given, ``None``."""
        self.stage = _ASKING
        self.number = 0
        """The number of the run, once it began: rises from run to run of a key as long as the
        coordinator lives, so that a resource can refuse an older one.
        """

    @property
    def outcome(self) -> EnqueueOutcome:
        """ACCEPT (it ran at once), BLOCK (it waits, or has waited and then ran), or DECLINE."""
        if self.is_declined:
            return EnqueueOutcome.DECLINE
        return EnqueueOutcome.BLOCK if self.has_waited else EnqueueOutcome.ACCEPT

    @property
    def is_current(self) -> bool:
        """Whether this request is the one that may work on the key now."""
        return self.stage is _RUNNING

    def __bool__(self) -> bool:
        return self.stage is _RUNNING

    def __repr__(self) -> str:
        number = f" {self.number}" if self.number else ""
        return f"<Token{number} of {self.key!r}: {self.stage.value}>"
