"""Multis that are applied exactly once, in order, whatever happens to their answers.

A lost reply leaves the sender of a write in doubt. Repeating a sequential create may double an item, repeating a delete cannot tell
"I did it" from "somebody else did": Curator's windows F2, F4 and F6. Here every multi begins with ``SetData(tally, version=n)`` on a
znode that nobody else writes. So the tally's version *is* the number of multis applied; the n-th can be applied once only, and only
after the one before it. In doubt it is read, or the same multi is simply sent again.

Groups of operations (all or none each) are packed into multis bounded by count and bytes; several multis are under way at a time.

Who is authoritative: the tally's version on the servers. States:

* **open**: batches are sent in order, up to ``window`` under way;
* **troubled**: some answer was no success. Nothing more is sent until all under way are answered, for what follows a failed one fails
  too. Then: a group that ZooKeeper refused is told its error, all others are sent again, in their order. If anything is *unknown*, a
  thread waits for the connection, reads the tally, and sends again unchanged what was not applied;
* **over**: closed, or an *ephemeral* tally whose session is gone. Everything left fails: what was surely not applied with
  :class:`~leaderq.errors.SessionExpired` or :class:`~leaderq.errors.SessionClosed`, what may have been with
  :class:`~leaderq.errors.ConnectionLost`.

An **ephemeral** tally is a fence as well: once its session is over nothing of it can be applied any more. A **persistent** one outlives
the session, and so does the certainty about what was sent. Whoever is killed leaves it behind; see
:func:`~leaderq.queues.places.sweep`.

What happens on each failure:

* **reply lost, connection lost, server changed**: as above; the groups' futures stay open meanwhile. A group can be given up while it has
  not been sent (``future.cancel()`` then gives ``True``);
* **parent missing** (queue deleted, container reaped): made again, and the group sent again;
* **tally missing** (deleted by hand): made again if nothing is unknown; else the unknown groups fail with ``ConnectionLost``.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import ConnectionLost, LeaderqError, NodeExists, NoNode, SessionClosed, SessionExpired, TooLarge
from leaderq.queues.tallying.group import Batch, Fate, Group, estimated_bytes, packed
from leaderq.zookeeper import Create, Operation, Session, SessionState
from leaderq.zookeeper.batches import MAX_BYTES, MAX_OPS, WINDOW
from leaderq.zookeeper.paths import parent_of, validated_path

log = logging.getLogger(__name__)

_MAX_REPAIRS = 3
_LOOK_S = 0.5
_REST_S = 0.05


class Tally:
    """See the module. May be used from any thread; callbacks of its futures run on the session's thread and must not block.

    *Guarantees:* each group is applied at most once; if its future gives a result, exactly once; if it fails with another error than
    ``ConnectionLost``, never. Groups are applied in the order of :meth:`submit`, but for those refused.
    *Not guaranteed:* results (the paths created) when an answer was lost: then the future gives ``None``.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        ephemeral: bool = False,
        data: bytes = b"",
        max_ops: int = MAX_OPS,
        max_bytes: int = MAX_BYTES,
        window: int = WINDOW,
    ) -> None:
        self.path = validated_path(path)
        self.is_ephemeral = ephemeral
        self._session = session
        self._data = data
        self._max_ops = max_ops
        self._max_bytes = min(max_bytes, session.max_request_bytes - 4096)
        self._window = window
        self._lock = threading.Lock()
        self._settled = threading.Condition(self._lock)
        self._woken = threading.Event()
        self._waiting: deque[Group] = deque()
        self._again: deque[Batch] = deque()
        self._flight: deque[Batch] = deque()
        self._number = 0
        self._unsettled = 0
        self._is_troubled = False
        self._pumps_wanted = 0
        self._is_open = False
        self._owner = 0
        self._end: LeaderqError | None = None

    # -- its life -------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make the znode; what is submitted earlier waits for it. May be called again."""
        self._session.ensure_path(parent_of(self.path))
        try:
            self._session.create(self.path, self._data, ephemeral=self.is_ephemeral)
        except NodeExists:  # a former try whose reply was lost: the path is nobody else's
            log.debug("%s is there already", self.path)
        _, stat = self._session.get(self.path)
        self._session.add_listener(self._heard)
        with self._lock:
            self._owner, self._number, self._is_open = stat.ephemeral_owner, stat.version, True
        self._pump()

    @property
    def is_over(self) -> bool:
        """Whether nothing can be applied through it any more."""
        return self._end is not None

    def close(self, timeout_s: float) -> bool:
        """Wait for what is under way, and take the znode away; gives whether all was settled in ``timeout_s``."""
        deadline = now_s() + timeout_s
        is_clean = self.flush(timeout_s)
        was_over = self._end is not None
        self._finish(SessionClosed("the queue was closed before this was sent"))
        self._session.remove_listener(self._heard)
        if not was_over and self._session.state is SessionState.CONNECTED:
            try:
                self._session.delete(self.path, timeout_s=max(0.1, deadline - now_s()))
            except LeaderqError as exc:
                log.debug("%s is left behind: %s", self.path, exc)
        return is_clean

    # -- submitting -----------------------------------------------------------------------------------------------------

    @property
    def unsettled(self) -> int:
        """Groups whose outcome is not known yet."""
        return self._unsettled

    def submit(self, operations: Sequence[Operation]) -> Future[list[Any] | None]:
        """Send these, all or none, at the next opportunity. Never blocks.

        :raises ConfigurationError: a path that ZooKeeper cannot use.
        """
        return self.submit_all([operations])[0]

    def submit_all(self, groups: Iterable[Sequence[Operation]]) -> list[Future[list[Any] | None]]:
        """As :meth:`submit` for each; better packed, since all are known before the first is sent."""
        chroot_bytes = len(self._session.chroot.encode())
        made = [self._group(tuple(operations), chroot_bytes) for operations in groups]
        with self._lock:
            end = self._end
            for group in made:
                if not group.future.done() and end is None:
                    group.future.add_done_callback(self._count_down)
                    self._waiting.append(group)
                    self._unsettled += 1
        for group in made:
            if end is not None:
                group.settle(error=end)
        self._pump()
        return [group.future for group in made]

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything submitted is settled; whether it was, in ``timeout_s``."""
        with self._lock:
            return self._settled.wait_for(lambda: not self._unsettled, timeout_s)

    def _group(self, operations: tuple[Operation, ...], chroot_bytes: int) -> Group:
        for op in operations:  # here, where it fails its own group only, at the call
            validated_path(op.path, open_ended=isinstance(op, Create) and op.sequential)
        size = estimated_bytes(operations, chroot_bytes)
        group = Group(operations, size)
        limit = self._session.max_request_bytes - 4096
        if not operations:
            group.settle([])
        elif size > limit:
            group.settle(error=TooLarge(_named(operations), size=size, limit=limit, path=operations[0].path))
        return group

    def _count_down(self, _done: Future[Any]) -> None:
        with self._lock:
            self._unsettled -= 1
            if not self._unsettled:
                self._settled.notify_all()

    # -- sending --------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        # One thread sends at a time, or two batches could overtake each other; who comes meanwhile has it go round again.
        with self._lock:
            self._pumps_wanted += 1
            if self._pumps_wanted > 1:
                return
        while True:
            while (batch := self._next()) is not None:
                self._send(batch)
            with self._lock:
                if self._pumps_wanted == 1:
                    self._pumps_wanted = 0
                    return
                self._pumps_wanted = 1

    def _next(self) -> Batch | None:
        with self._lock:
            if self._is_troubled or self._end is not None or len(self._flight) >= self._window or not self._is_open:
                return None
            if self._again:
                batch = self._again.popleft()
            else:
                groups = packed(self._waiting, self._max_ops, self._max_bytes)
                if not groups:
                    return None
                batch = Batch(self._number, groups)
                self._number += 1
            batch.fate = None
            self._flight.append(batch)
            return batch

    def _send(self, batch: Batch) -> None:
        try:
            answer = self._session.multi_async(batch.operations(self.path))
        except LeaderqError as exc:
            answer = Future()
            answer.set_exception(exc)
        answer.add_done_callback(partial(self._answered, batch))

    def _answered(self, batch: Batch, answer: Future[list[Any]]) -> None:
        done: list[Batch] = []
        with self._lock:
            batch.answered(answer)
            while self._flight and self._flight[0].fate is Fate.APPLIED:
                done.append(self._flight.popleft())
            if batch.fate is not Fate.APPLIED:
                self._is_troubled = True
            flight: list[Batch] = []
            if self._is_troubled and all(one.fate is not None for one in self._flight):
                flight, self._flight = list(self._flight), deque()
        for one in done:
            one.settle()
        if flight:
            self._resolve(flight)
        self._pump()

    # -- trouble --------------------------------------------------------------------------------------------------------

    def _resolve(self, flight: list[Batch]) -> None:
        """All that were under way are answered, and the first of them was not applied."""
        if any(one.fate is Fate.OVER for one in flight) or self._end is not None:
            self._again.extendleft(reversed(flight))
            self._finish(self._end or SessionClosed("the session was closed by its owner"))
        elif flight[0].fate is Fate.REFUSED and not any(one.is_doubtful for one in flight):
            self._refused(flight)
        else:
            self._again.extendleft(reversed(flight))
            self._in_background(self._recover)

    def _refused(self, flight: list[Batch]) -> None:
        """Tell the group to blame, and send all others again under new numbers: none of them was applied."""
        first = flight[0]
        blamed = first.culprit()
        with self._lock:
            groups = [group for batch in (*flight, *self._again) for group in batch.groups]
            self._again.clear()
            self._number = first.number
        if blamed is None:
            for group in first.groups:
                group.settle(error=first.error)
            self._go_on(groups[len(first.groups) :])
            return
        position, op = blamed
        culprit = first.groups[position]
        if isinstance(first.error, NoNode) and isinstance(op, Create) and culprit.repairs < _MAX_REPAIRS:
            culprit.repairs += 1
            self._in_background(partial(self._repair, parent_of(op.path), culprit, groups))
            return
        culprit.settle(error=first.error)
        self._go_on([group for group in groups if group is not culprit])

    def _repair(self, parent: str, culprit: Group, groups: list[Group]) -> None:
        """Make a parent that is missing."""
        try:
            self._session.ensure_path(parent)
        except ConnectionLost:
            pass  # then sending fails as well, and waits for the connection
        except LeaderqError as exc:
            culprit.settle(error=exc)
            groups = [group for group in groups if group is not culprit]
        self._go_on(groups)

    def _go_on(self, groups: list[Group]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed([group for group in groups if not group.future.done()]))
            self._is_troubled = False
        self._pump()

    def _recover(self) -> None:
        """Find out what was applied, however long the servers are away."""
        while self._end is None:
            self._woken.clear()
            if self._session.state is SessionState.CLOSED:
                self._finish(SessionClosed("the session was closed by its owner"))
            elif self._is_ephemeral_over():
                self._finish(SessionExpired("the session of this consumer is over", path=self.path))
            elif self._session.state is not SessionState.CONNECTED:
                self._woken.wait(_LOOK_S)
            elif self._reconciled():
                return
            else:
                self._woken.wait(_REST_S)

    def _reconciled(self) -> bool:
        try:
            self._session.sync(self.path)
            stat = self._session.exists(self.path)
            if stat is None and not self.is_ephemeral:
                self._recount()
                return True
        except LeaderqError as exc:
            log.debug("%s cannot be read for now: %s", self.path, exc)
            return False
        if stat is None or (self.is_ephemeral and stat.ephemeral_owner != self._owner):
            self._finish(SessionExpired("the session of this consumer is over", path=self.path))
            return True
        with self._lock:
            batches, self._again = list(self._again), deque()
            left = [batch for batch in batches if batch.number >= stat.version]
            is_reset = bool(left) and left[0].number > stat.version
            if not is_reset:
                self._again.extend(left)
                self._number = left[-1].number + 1 if left else stat.version
                self._is_troubled = False
        for batch in batches:
            if batch.number < stat.version:
                batch.settle()
        if is_reset:
            self._begin_anew(left, stat.version)
        self._pump()
        return True

    def _recount(self) -> None:
        """The znode was deleted: make it again."""
        self._session.ensure_path(parent_of(self.path))
        self._session.create(self.path, self._data)
        with self._lock:
            batches, self._again = list(self._again), deque()
        self._begin_anew(batches, 0)

    def _begin_anew(self, batches: list[Batch], version: int) -> None:
        """The count was lost. Only what was certainly never applied may be sent again."""
        for batch in batches:
            if batch.is_doubtful:
                for group in batch.groups:
                    group.settle(
                        error=ConnectionLost(f"{self.path} was deleted meanwhile: the outcome is unknown", path=self.path)
                    )
        with self._lock:
            self._number = version
        self._go_on([group for batch in batches for group in batch.groups])

    def _is_ephemeral_over(self) -> bool:
        current = self._session.id
        return self.is_ephemeral and (
            self._session.state is SessionState.LOST or (current is not None and current != self._owner)
        )

    def _finish(self, error: LeaderqError) -> None:
        """Nothing more is sent; all that is left fails."""
        with self._lock:
            if self._end is None:
                self._end = error
            unsent, self._waiting = list(self._waiting), deque()
            left = [*self._flight, *self._again]
            self._flight, self._again = deque(), deque()
        for batch in left:
            lost = ConnectionLost(f"{error}: whether this was applied is unknown", path=self.path)
            for group in batch.groups:
                group.settle(error=lost if batch.is_doubtful or batch.fate is None else error)
        for group in unsent:
            group.settle(error=error)
        self._woken.set()

    def _heard(self, state: SessionState) -> None:
        """On the session's thread: an ephemeral tally dies with its session, even while nothing is under way."""
        self._woken.set()
        if self.is_ephemeral and state is SessionState.LOST and self._end is None:
            self._in_background(lambda: self._finish(SessionExpired("the session of this consumer is over", path=self.path)))

    def _in_background(self, job: Callable[[], None]) -> None:
        threading.Thread(target=job, name="leaderq-tally", daemon=True).start()


def _named(operations: Sequence[Operation]) -> str:
    return "one operation" if len(operations) == 1 else f"a group of {len(operations)} operations"
