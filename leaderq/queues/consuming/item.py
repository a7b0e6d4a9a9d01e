"""An item taken on request, in the hands of who took it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from leaderq.errors import BadVersion, ClaimLost, NoNode, QueueClosed, SessionExpired, ZooKeeperError
from leaderq.queues.consuming.claim import Claim
from leaderq.queues.consuming.operations import acknowledged
from leaderq.zookeeper import Check, Operation

if TYPE_CHECKING:
    from leaderq.term import Term

T = TypeVar("T")


class Settles(Protocol):
    """What an item needs of the queue it was taken from."""

    def ack(self, claim: Claim, operations: Sequence[Operation]) -> list[Any] | None: ...

    def fail(self, claim: Claim, error: BaseException) -> None: ...

    def requeue(self, claim: Claim, delay_s: float) -> None: ...


class Item(Generic[T]):
    """One item, until it is acknowledged or given back; a context manager that does the former at a clean end, the latter on an error.

    ``value``: what was put; of several put as one (``put_multi``) the first, and ``values`` are all. ``name``: of its znode. ``attempt``:
    1 the first time. ``enqueued``: when it was first put, by the clock of the servers.

    *Guarantees* with a lock path: nobody else is given it while this session lasts; :meth:`ack` fails, and nothing is written, if it
    does not any more. *Not guaranteed* without: it was deleted when it was taken; if this process dies it is lost.
    """

    def __init__(self, claim: Claim, values: Sequence[T], queue: Settles) -> None:
        self._claim = claim
        self._queue = queue
        self.values = values

    @property
    def value(self) -> T:
        """What was put."""
        return self.values[0]

    @property
    def name(self) -> str:
        """The name of its znode."""
        return self._claim.name

    @property
    def attempt(self) -> int:
        """The how-manieth consumer this is, 1 being the first; former ones failed."""
        return self._claim.failures + 1

    @property
    def enqueued(self) -> datetime:
        """When it was first put."""
        return datetime.fromtimestamp(self._claim.enqueued_ms / 1000, timezone.utc)

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged or given back."""
        return self._claim.is_settled

    def ack(self, ops: Iterable[Operation] = (), *, term: Term | None = None) -> list[Any] | None:
        """It is done: remove it, and carry out ``ops`` with that, all or none. Gives their results, ``None`` if the answer was lost.

        With ``term``, also only if that leadership still stands (through ``term.write``). May be called again if it raised.

        :raises ClaimLost: it is not ours any more; nothing was written.
        :raises ZooKeeperError: one of ``ops`` failed by itself (``index`` counts in them); nothing was written, the item is still ours.
        :raises Deposed: ``term`` is over.
        """
        self._refuse_twice()
        own = acknowledged(self._claim)
        extra = tuple(ops)
        guard = (Check(self._claim.hold.member),) if term is not None or (extra and not self._claim.hold.is_locking) else ()
        whole = (*guard, *own, *extra)
        try:
            results = self._queue.ack(self._claim, whole) if term is None else term.write(whole)
        except (SessionExpired, NoNode, BadVersion) as exc:
            if isinstance(exc, SessionExpired) or (exc.index is not None and exc.index < len(guard) + len(own)):
                raise ClaimLost(f"item {self.name} is not this consumer's any more: {exc}") from exc
            raise _counted(exc, len(guard) + len(own)) from exc
        except ZooKeeperError as exc:
            raise _counted(exc, len(guard) + len(own)) from exc
        self._claim.is_settled = True
        self._queue.ack(self._claim, ())
        return None if results is None else list(results[len(guard) + len(own) :])

    def requeue(self, delay_s: float = 0.0) -> None:
        """Give it back to the tail, with its id, priority or due time, for anybody to try ``delay_s`` seconds from now; counts as
        a failed attempt."""
        self._refuse_twice()
        self._queue.requeue(self._claim, delay_s)
        self._claim.is_settled = True

    def fail(self, error: BaseException) -> None:
        """Working on it failed: what becomes of it is the retry policy's to say."""
        self._refuse_twice()
        self._queue.fail(self._claim, error)
        self._claim.is_settled = True

    def __enter__(self) -> Item[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        if self.is_settled:
            return
        if error is None:
            self.ack()
        else:
            self.fail(error)

    def __repr__(self) -> str:
        return f"Item({self.name!r}, attempt {self.attempt}{', settled' if self.is_settled else ''})"

    def _refuse_twice(self) -> None:
        if self.is_settled:
            raise QueueClosed(f"item {self.name} was acknowledged or given back already")


def _counted(exc: ZooKeeperError, before: int) -> ZooKeeperError:
    if exc.index is not None:
        exc.index -= before
    return exc


Deserialize = Callable[[bytes], Any]
