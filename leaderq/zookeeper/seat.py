"""A seat: an ephemeral znode that its owner holds as long as the session lives, and what the owner
may do.

Examples are a term, a token of a key, and a place in Curator's latch. Two sides can say whether the
owner may still act: this process, while the session is proven to live (:attr:`Seat.is_held`, which
sends nothing); and the servers, which refuse a write from a seat that is gone (:meth:`Seat.write`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leaderq.errors import LeaderqError, NoNode, SessionClosed, SessionExpired, ZooKeeperError
from leaderq.zookeeper.watching import WatchEvent, WatchKind
from leaderq.zookeeper.wire import Check, Operation

if TYPE_CHECKING:
    from leaderq.threads import primitives
    from leaderq.zookeeper.session import Session


class SeatLost(LeaderqError):
    """Nothing was written, because the seat is gone. ``with_session``: whether its session is gone,
    too.
    """

    def __init__(self, path: str, *, with_session: bool) -> None:
        why = "its session is over" if with_session else "its znode is gone"
        super().__init__(f"the seat {path} is lost: {why}")
        self.with_session = with_session


@dataclass(frozen=True, slots=True)
class Seat:
    """A seat in ZooKeeper. ``path`` is its ephemeral znode; ``owner`` is the id of the session that
    made it.

    *Guarantees:* while :attr:`is_held` is true, the session lives; so the znode stands, unless
    somebody deletes it. What :meth:`write` has written was written while the znode stood.
    *Not guaranteed:* that the seat is still held after :attr:`is_held` was read.
    """

    session: Session
    path: str
    owner: int

    @property
    def is_held(self) -> bool:
        """Whether the session of the seat certainly lives now. Sends no request."""
        return self.session.pulse.holds(self.owner)

    @property
    def is_over(self) -> bool:
        """Whether this process has another session by now."""
        return self.session.id not in (self.owner, None)

    @property
    def fence(self) -> Check:
        """The operation that makes a multi fail if the seat is gone."""
        return Check(self.path)

    def write(
        self, operations: Sequence[Operation], *, timeout_s: float | None = None
    ) -> list[Any]:
        """Carry out all ``operations``, or none if the seat is gone; return one result for each.

        :raises SeatLost: the seat is gone; nothing was written.
        :raises NotConnected: nothing was sent.
        :raises ConnectionLost: it is unknown whether the operations were written.
        :raises ZooKeeperError: ZooKeeper refused an operation; ``index`` is its place in
            ``operations``. Nothing was written.
        """
        if self.is_over:
            raise SeatLost(self.path, with_session=True)
        try:
            return self.session.multi([self.fence, *operations], timeout_s=timeout_s)[1:]
        except (SessionExpired, SessionClosed) as exc:
            raise SeatLost(self.path, with_session=True) from exc
        except ZooKeeperError as exc:
            if is_fence(exc):
                raise SeatLost(self.path, with_session=False) from exc
            if exc.index is not None:
                exc.index -= 1  # the caller does not count our check
            raise

    def watch(self, gone: Callable[[], object], unheard: Callable[[], object]) -> None:
        """Call ``gone`` when the znode is deleted or is not there. Call ``unheard`` when the watch
        is lost; then call this method again. Both are called on a thread of the session.
        """

        def heard(event: WatchEvent) -> None:
            (gone if event.kind is WatchKind.DELETED else unheard)()

        def answered(reply: primitives.Future[list[str]]) -> None:
            error = reply.exception()
            if isinstance(error, NoNode):
                gone()
            elif error is not None:
                unheard()

        # The children of a seat, which has none: exists() would leave a watch where nothing is.
        self.session.children_async(self.path, watch=heard).add_done_callback(answered)


def is_fence(error: BaseException | None) -> bool:
    """Whether a multi that begins with a seat's fence failed because of that fence."""
    return isinstance(error, NoNode) and error.index == 0
