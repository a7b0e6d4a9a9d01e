"""Multis that are applied exactly once, in order, whatever happens to their answers.

Every multi begins with ``SetData(guard, version=n)`` on a znode that nobody else writes, the
*sequence guard*. So the guard's version is the number of multis applied, and each multi can be
applied only once, and only after the one before it. In doubt the writer reads the version, or sends
the same multi again. Groups of operations (all or none each) are packed into multis bounded by
count and bytes; several multis are under way at a time.

States:

* **open**: batches are sent in order, up to a measured limit (``in_flight``);
* **halted**: some answer was not a success. Nothing more is sent until all batches under way are
  answered. Then a group that ZooKeeper refused gets its error, and all others are sent again, in
  order.
  If an outcome is *unknown*, a thread waits for the connection, reads the guard, and sends again
  what was not applied (see :mod:`~leaderq.zookeeper.writing.groups`);
* **over**: closed, or an *ephemeral* guard whose session is gone. What was certainly not applied
  fails with :class:`~leaderq.errors.SessionExpired`, :class:`~leaderq.errors.SessionClosed` or
  :class:`~leaderq.errors.QueueClosed`, anything else with :class:`~leaderq.errors.ConnectionLost`.

An ephemeral guard is also a fence: nothing can be applied once its session is over. A persistent
guard outlives the session; :func:`sweep` deletes those that killed processes left.

Further failures: **parent missing** (queue deleted, container reaped): the parent is made again,
and the group is sent again; **2^30 multis**: the guard is made again before its version overflows;
**guard missing** (deleted by hand): the groups in doubt fail with ``ConnectionLost``, all others
are sent with a new count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from leaderq.base import chance, clock
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NodeExists,
    NoNode,
    NotConnected,
    QueueClosed,
    SessionClosed,
    SessionExpired,
    TooLarge,
)
from leaderq.threads import Backoff, Retry, Service, Waker, primitives
from leaderq.threads.waker import bounded_s
from leaderq.zookeeper import (
    Create,
    Delete,
    Operation,
    Session,
    SessionState,
    SetData,
    Stat,
    retrying,
)
from leaderq.zookeeper.paths import join, parent_of, validated_path
from leaderq.zookeeper.reading import existing
from leaderq.zookeeper.requests import failed_future
from leaderq.zookeeper.retrying import retry_until_connected
from leaderq.zookeeper.writing.groups import (
    MARGIN_BYTES,
    MULTI_BYTES,
    MULTI_OPS,
    MultiStatus,
    OperationGroup,
    PackedMulti,
    SendQueue,
    estimated_bytes,
    tell,
    validated,
)

log = logging.getLogger(__name__)
_LEAST_S = 0.1
_PROOF_S = 0.5


def await_outcomes(
    futures: Sequence[primitives.Future[Any]], patience_s: float | None = None
) -> list[LeaderqError | None]:
    """Wait for these answers as long as some come; return the error of each, or ``None``.

    :raises ConnectionLost: no answer came for ``patience_s`` seconds (``retrying.PATIENCE_S``).
    """
    patience_s = retrying.PATIENCE_S if patience_s is None else patience_s
    errors: list[LeaderqError | None] = []
    for future in futures:
        try:
            error = future.exception(patience_s)
        except primitives.FutureTimeout:
            raise ConnectionLost(f"no answer within {patience_s:.0f} s; try again later") from None
        if error is not None and not isinstance(error, LeaderqError):
            raise error
        errors.append(error)
    return errors


_BACKOFF = Retry(first_s=0.05, most_s=1.0)


class SequencedWriter:
    """Applies groups of operations exactly once, in order; see the module. Any thread may use it;
    callbacks of its futures run on the session's thread and must not block.

    *Guarantees:* each group is applied at most once; exactly once if its future has a result; never
    if the future fails with another error than ``ConnectionLost``. Groups are applied in the order
    of :meth:`submit`, except those that are refused.
    *Not guaranteed:* results (the paths created) when an answer was lost: then the future's result
    is ``None``.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        ephemeral: bool = False,
        data: bytes = b"",
        max_ops: int = MULTI_OPS,
    ) -> None:
        self.path = validated_path(path)
        self.is_ephemeral = ephemeral
        self.limit = session.max_request_bytes - MARGIN_BYTES
        """Bytes of the largest group that can be sent, by estimate."""
        self._session = session
        self.chroot_bytes = len(session.chroot.encode())
        self._data = data
        self._lock = primitives.Lock()
        self._settled = primitives.Condition(self._lock)
        self._sending = primitives.Lock()
        self._woken = Waker()
        self._queue = SendQueue(max_ops=max_ops, max_bytes=min(MULTI_BYTES, self.limit))
        self.unsettled = 0
        """Groups whose outcome is not known yet."""
        self._is_open = self._is_opening = False
        self._owner = 0
        self._born = 0
        self.made_ms = 0
        """When its guard was made, by the calendar of the servers."""
        self._end: LeaderqError | None = None

    def open(self) -> None:
        """Make the guard, and send the groups that were submitted before. May be called again, also
        after an error.

        :raises ConnectionLost: there is no connection, or no answer.
        """
        try:
            stat = self._made()
        except NoNode:
            self._session.ensure_path(parent_of(self.path))
            stat = self._made()
        with self._lock:
            if self._end is not None:  # closed meanwhile
                self._session.delete_async(self.path)
            if self._is_open or self._end is not None:
                return
            self._owner, self._born = stat.ephemeral_owner, stat.czxid
            self.made_ms = stat.mtime_ms
            self._queue.number = stat.version
            self._is_open = self._is_opening = True
            self._queue.is_halted = False
        self._session.add_listener(self._on_state)
        if self._is_ephemeral_over():  # between the reading and the listening
            self._on_state(SessionState.LOST)
        self._send_more()
        if not self.is_ephemeral:
            parent = parent_of(self.path)
            self._in_background(lambda: sweep(self._session, parent, stat.mtime_ms))

    def _made(self) -> Stat:
        """Create the guard and return its ``Stat``, for which a second write is needed."""
        create = Create(self.path, self._data, ephemeral=self.is_ephemeral)
        try:
            made: Stat = self._session.multi([create, SetData(self.path, self._data)])[1]
        except NodeExists:  # by a former try whose reply was lost: nobody else uses the path
            _, made = self._session.get(self.path)
        return made

    @property
    def is_over(self) -> bool:
        return self._end is not None

    def surely_stands(self) -> bool:
        """Whether the session of an ephemeral guard certainly lives. While the process is frozen or
        cut off the session can end unnoticed, and then others may have what this writer claimed. If
        the newest proof grows old, this asks for another; if there is no valid one, it waits a
        moment for it.
        """
        if self.is_over or self._session.state is not SessionState.CONNECTED:
            return False
        return self._session.pulse.ensure(self._owner, _PROOF_S) and not self.is_over

    def close(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s`` seconds for the groups under way, and delete the guard; return
        whether all groups had an outcome in time.
        """
        deadline = clock.now_s() + timeout_s
        is_clean = self.flush(timeout_s) if self._is_open else not self.unsettled
        was_over = self._end is not None
        self._finish(QueueClosed("the queue was closed before this was sent"))
        self._session.remove_listener(self._on_state)
        if self._is_open and not was_over:
            left_s = max(_LEAST_S, deadline - clock.now_s())
            try:
                delete = partial(self._session.delete, self.path, timeout_s=left_s)
                retry_until_connected(delete, left_s)
            except LeaderqError as exc:
                log.debug("guard left behind until it is swept path=%s error=%s", self.path, exc)
        return is_clean

    def submit(
        self, operations: Sequence[Operation], *, are_valid: bool = False
    ) -> primitives.Future[list[Any] | None]:
        """Send ``operations`` as one group as soon as possible; the future has their results. Never
        blocks. ``are_valid``: the paths were checked before.

        :raises ConfigurationError: ZooKeeper cannot use one of the paths.
        """
        one = tuple(operations)
        if not are_valid:
            validated(one)
        future: primitives.Future[list[Any] | None] = primitives.Future()
        size = estimated_bytes(one, self.chroot_bytes)
        self.send([OperationGroup(one, size, partial(_complete, future))])
        return future

    def send(self, groups: Sequence[OperationGroup]) -> None:
        """Send groups that the caller made, whose paths are known to be valid. Each group is told
        its own outcome. If this is not open, it opens when there is a connection; if the servers
        refuse that, everything that was sent fails with their error, and the next call tries again.
        """
        limit = self.limit
        large = [group for group in groups if group.size > limit]
        for group in large:
            path = group.operations[0].path
            what = "one operation" if group.count == 1 else f"a group of {group.count} operations"
            tell([group], TooLarge(what, size=group.size, limit=limit, path=path))
        fit = [group for group in groups if group.size <= limit] if large else groups
        with self._lock:
            if (end := self._end) is None:
                self._queue.waiting.extend(fit)
                self.unsettled += len(fit)
            was_opening, self._is_opening = self._is_opening, True
            is_sender_wanted = self._queue.may_send
        if end is not None:
            tell(fit, end)
        elif is_sender_wanted:
            self._send_more()
        elif not was_opening:
            self._session.add_listener(self._on_state)
            self._in_background(self._recover)

    def withdraw_those(self, wanted: Callable[[OperationGroup], bool]) -> list[OperationGroup]:
        """Remove and return the waiting groups for which ``wanted(group)`` is true: they are
        certainly not sent, and hear of no outcome.
        """
        with self._lock:
            found = self._queue.withdraw(wanted)
        self._count_down(len(found))
        return found

    def flush(self, timeout_s: float) -> bool:
        """Wait until every group that was submitted has its outcome; return whether that took at
        most ``timeout_s`` seconds.
        """
        with self._lock:
            return self._settled.wait_for(lambda: not self.unsettled, bounded_s(timeout_s))

    def _settle(self, groups: Sequence[OperationGroup], error: LeaderqError) -> None:
        tell(groups, error)
        self._count_down(len(groups))

    def _count_down(self, count: int) -> None:
        with self._lock:
            self.unsettled -= count
            if not self.unsettled:
                self._settled.notify_all()

    def _send_more(self) -> None:
        """Send what may be sent. One thread sends at a time, for all others, or two multis could
        overtake each other.
        """
        is_wanted = True
        while is_wanted and self._sending.acquire(blocking=False):
            try:
                while (batch := self._next()) is not None:
                    batch.sent_s = clock.now_s()
                    try:
                        operations = batch.operations(self.path)
                        answer = self._session.multi_async(operations, are_valid=True)
                    except LeaderqError as exc:
                        answer = failed_future(exc)
                    answer.add_done_callback(partial(self._answered, batch))
            finally:
                self._sending.release()
            with self._lock:  # somebody may have come, and left it to this thread
                is_wanted = self._queue.may_send

    def _next(self) -> PackedMulti | None:
        with self._lock:
            if self._queue.needs_renewal:
                self._queue.is_halted = True
                self._in_background(self._renew)
            return self._queue.next_batch()

    def _answered(self, batch: PackedMulti, answer: primitives.Future[list[Any]]) -> None:
        with self._lock:
            if self._end is not None:  # all have been told
                return
            batch.note_answer(answer)
            if batch.status is not MultiStatus.APPLIED:
                self._queue.is_halted = True
            done = self._queue.take_applied(clock.now_s())
            failed = self._queue.take_failed()
            is_over = any(one.status is MultiStatus.OVER for one in failed)
            blamed = None if is_over or not failed else self._queue.blame(failed)
            if failed and blamed is None:
                self._queue.set_aside(failed)
        for one in done:
            one.settle()
            self._count_down(len(one.groups))
        if is_over:
            self._finish(SessionClosed("the session was closed by its owner"))
        elif blamed is not None:
            self._refused(blamed)
        elif failed:
            self._in_background(self._recover)
        self._send_more()

    def _refused(self, batch: PackedMulti) -> None:
        """Tell the group that ZooKeeper refused (all if it does not say which), or first repair its
        parent. The other groups of the batch were not applied, and wait again.
        """
        blamed = batch.culprit()
        error = batch.error
        if blamed is None:  # it was refused as a whole
            self._expel(batch.groups, error)
            return
        culprit, op = blamed
        # however often: an empty queue's path may be reaped again and again (CURATOR-308)
        if isinstance(error, NoNode) and isinstance(op, Create):
            self._in_background(partial(self._repair, parent_of(op.path), culprit))
        else:
            self._expel([culprit], error)

    def _repair(self, parent: str, culprit: OperationGroup) -> None:
        try:
            self._session.ensure_path(parent)
        except ConnectionLost as exc:  # then sending fails as well, and waits for the connection
            log.debug("path not made now path=%s error=%s", parent, exc)
        except LeaderqError as exc:
            self._expel([culprit], exc)
            return
        self._go_on()

    def _expel(self, refused: Sequence[OperationGroup], error: LeaderqError | None) -> None:
        with self._lock:
            here = self._queue.withdraw(set(refused).__contains__)
        self._settle(here, error or ConnectionLost("refused without a reason"))
        self._go_on()

    def _go_on(self) -> None:
        with self._lock:
            self._queue.is_halted = self._end is not None
        self._send_more()

    def _renew(self) -> None:
        """Delete the guard and make it again in one transaction: nobody sees it gone, and it counts
        from 0.
        """
        create = Create(self.path, self._data, ephemeral=self.is_ephemeral)
        try:
            self._session.multi([Delete(self.path), create])
            log.info("sequence guard made again path=%s", self.path)
        except LeaderqError as exc:
            log.debug("guard perhaps not made again path=%s error=%s", self.path, exc)
        self._recover()

    def _recover(self) -> None:
        backoff = Backoff(_BACKOFF)
        while self._end is None:
            if self._session.state is SessionState.CLOSED:
                self._finish(SessionClosed("the session was closed by its owner"))
            elif self._is_ephemeral_over():
                self._finish(self._expired())
            elif self._reconciled() if self._is_open else self._has_opened():
                return
            else:
                self._woken.wait(backoff.next_s())

    def _has_opened(self) -> bool:
        try:
            self.open()
        except (ConnectionLost, SessionExpired):
            return False
        except LeaderqError as exc:
            with self._lock:
                self._is_opening, (_, groups) = False, self._queue.empty()
            self._settle(groups, exc)
        return True

    def _reconciled(self) -> bool:
        session = self._session
        try:
            session.sync(self.path)
            stat = session.exists(self.path)
            # made again: its czxid tells that it is another one
            if stat is None and not self._is_ephemeral_over():
                session.ensure_path(parent_of(self.path))
                session.create(self.path, self._data, ephemeral=self.is_ephemeral)
                stat = session.get(self.path)[1]
        except LeaderqError as exc:
            is_usual = isinstance(exc, ConnectionLost | NodeExists)
            level = logging.DEBUG if is_usual else logging.WARNING
            log.log(level, "guard not read now path=%s error=%s", self.path, exc)
            return False
        if stat is None or stat.ephemeral_owner != self._owner:
            if stat is not None:  # perhaps made by the next session, just now
                session.delete_async(self.path)
            self._finish(self._expired())
            return True
        with self._lock:
            if self._end is not None:
                return True
            applied, lost = self._queue.reconcile(stat.version, is_new=stat.czxid != self._born)
            self._born = stat.czxid
        for batch in applied:
            batch.results = None
            batch.settle()
            self._count_down(len(batch.groups))
        why = f"{self.path} was deleted meanwhile: the outcome is unknown"
        for batch in lost:
            self._settle(batch.groups, ConnectionLost(why, path=self.path))
        self._go_on()
        return True

    def _is_ephemeral_over(self) -> bool:
        is_lost = self._session.state is SessionState.LOST
        return self.is_ephemeral and (is_lost or self._session.id not in (None, self._owner))

    def _finish(self, error: LeaderqError) -> None:
        """Send nothing more; everything that has no outcome fails."""
        with self._lock:
            if self._end is None:
                self._end = error
            batches, groups = self._queue.empty()
        lost = ConnectionLost(f"{error}: whether this was applied is unknown", path=self.path)
        for batch in batches:
            self._settle(batch.groups, lost if batch.is_doubtful or batch.status is None else error)
        self._settle(groups, error)
        self._woken.wake()

    def _on_state(self, state: SessionState) -> None:
        """End an ephemeral writer when its session is lost; runs on the session's thread."""
        self._woken.wake()
        if self.is_ephemeral and state is SessionState.LOST and self._end is None:
            self._in_background(lambda: self._finish(self._expired()))

    def _expired(self) -> SessionExpired:
        return SessionExpired("the session of this consumer is over", path=self.path)

    def _in_background(self, job: Callable[[], object]) -> None:
        Service("leaderq-writer", lambda _: job()).start()


OLD_S = 24 * 3600.0
_AT_A_TIME = 1000
_SWEEP_S = 10.0


def sweep(session: Session, parent: str, now_ms: int) -> int:
    """Delete the guards below ``parent`` that nobody has written for ``OLD_S`` seconds before
    ``now_ms`` (the servers' time); return how many were deleted. If there are very many, look at
    some of them.

    Living owners are safe: the next write of an idle owner makes its guard again. Only writes that
    have been in doubt for all that time, because their sender had no connection, then fail as
    unknown. A guard is deleted only at the version that was read, so one in use stays. Errors are
    logged at level debug; the next writer that is opened tries again.
    """
    try:
        names = session.children(parent)
        paths = [join(parent, one) for one in chance.sample(names, min(len(names), _AT_A_TIME))]
        old = []
        for path, (_, stat) in existing(session, paths).items():
            if stat.ephemeral_owner == 0 and now_ms - stat.mtime_ms > OLD_S * 1000:
                old.append(session.delete_async(path, stat.version))
        return sum(error is None for error in await_outcomes(old, _SWEEP_S))
    except LeaderqError as exc:
        log.debug("writers not swept path=%s error=%s", parent, exc)
        return 0


def _complete(
    future: primitives.Future[list[Any] | None],
    groups: list[OperationGroup],
    error: LeaderqError | None,
) -> None:
    (group,) = groups
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(group.results)


OVERTAKEN = (BadVersion, NoNode, NodeExists)
"""The errors of a transition from a state that the znode does not have any more."""
Outcome = tuple[list[Any] | None, LeaderqError | None]
"""The results (``None`` if the answer was lost), or why it was not applied."""


def outcomes(
    writer: SequencedWriter, groups: Sequence[Sequence[Operation]], path: str
) -> list[Outcome]:
    """Write these groups of operations, and return the outcome of each.

    If no answer comes for ``retrying.PATIENCE_S`` seconds, the error of the remaining groups is
    ``NotConnected`` if they were certainly not sent, else ``ConnectionLost``. What a user gave was
    checked before (:func:`~leaderq.zookeeper.writing.groups.given_operations`).
    """
    known: dict[OperationGroup, LeaderqError | None] = {}
    all_answered = primitives.Event()

    def told(some: list[OperationGroup], error: LeaderqError | None) -> None:
        known.update(dict.fromkeys(some, error))  # atomic: the writer's thread may tell, too
        if len(known) == len(groups):
            all_answered.set()

    made = [OperationGroup(one, estimated_bytes(one, writer.chroot_bytes), told) for one in groups]
    writer.send(made)
    seen = 0
    lost: LeaderqError = ConnectionLost("no answer in time: the outcome is unknown", path=path)
    while made and not all_answered.wait(retrying.PATIENCE_S):
        if seen == len(known):
            unsent = writer.withdraw_those(set(made).__contains__)
            told(unsent, NotConnected("no connection in time: it was not sent", path=path))
            break
        seen = len(known)
    return [(one.results, known.get(one, lost)) for one in made]
