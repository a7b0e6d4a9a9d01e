"""Items that are this consumer's for now, and how they become its own, many in one multi.

First they are read (one multiRead), then claimed *as read*: with a lock path by ``Create(lock)``
and ``Check(item, version)``, else by ``Delete(item, version)``, through the membership's writer. A
multi is all or none. If one item is somebody else's, the stats of all are asked for, those taken
are left out, and the rest is tried again, some rounds.

What happens on each failure: *item gone, locked, changed*: left out; *not to be touched yet* (its
note says so), *not to be read, locked or deleted*: left to rest; *unreadable*: claimed all the
same, so that it can be set aside;
*connection lost*: the writer finds out; *session over* with a lock path: nothing is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from leaderq import clock
from leaderq.engine.members import Membership
from leaderq.errors import (
    ConnectionLost,
    CorruptItem,
    NodeExists,
    NoNode,
    ZooKeeperError,
)
from leaderq.queues.wire.names import SIMPLE_PREFIX
from leaderq.queues.wire.payload import Note, decode
from leaderq.reading import SizedReader
from leaderq.threads import primitives
from leaderq.writing.outcomes import OVERTAKEN
from leaderq.zookeeper import Check, Create, Delete, Operation, Session

log = logging.getLogger(__name__)

_ROUNDS = 3
_SLICE_S = 0.5
_NO_NOTE = Note()
TROUBLE_S = 5.0
"""So long an item rests that the servers do not let us have, or settle, though nobody else has it:
otherwise it would be tried again at once, and before all its neighbours."""


@dataclass(slots=True, eq=False)
class Claim:
    """One item. ``created_ms``: of its znode; ``version``: of the data that was read. ``items``:
    what is left of its values; none if the data cannot be understood, and then ``error`` says why.
    ``note``: what former consumers left about it; ``deaths``: how many have died over it beside
    that. ``is_raw``: of a simple queue, one value without a frame or a note. ``count``: values, at
    first; 1 if that is not known.
    """

    name: str
    data: bytes
    created_ms: int
    version: int
    membership: Membership
    deaths: int = 0
    error: CorruptItem | None = None
    items: Sequence[bytes] = ()
    note: Note = _NO_NOTE
    is_raw: bool = False
    count: int = 1

    def __post_init__(self) -> None:
        if self.name.startswith(SIMPLE_PREFIX):
            self.is_raw, self.items = True, (self.data,)
        else:
            try:
                payload = decode(self.data)
                self.items, self.note = payload.items, payload.note or _NO_NOTE
            except CorruptItem as exc:
                self.error = exc
        self.count = len(self.items) or 1

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations that claim it, if it is still as it was read."""
        membership = self.membership
        item = membership.paths.item(self.name)
        if not membership.is_locking:
            return (Delete(item, self.version),)
        lock = Create(membership.paths.lock(self.name), membership.mark.encode(), ephemeral=True)
        return lock, Check(item, self.version)

    @property
    def not_before_ms(self) -> int:
        """When it may be tried again; 0 if at any time."""
        return self.note.not_before_ms or 0

    @property
    def failures(self) -> int:
        """How often a consumer has failed at it, or died over it."""
        return self.note.attempt + self.deaths

    @property
    def enqueued_ms(self) -> int:
        return self.note.enqueued_ms or self.created_ms


@dataclass
class ClaimResult:
    """The result of trying to claim some names.

    ``resting``: until when, in ms. ``gone``: deleted by others. ``locked``: others work on them.
    ``again``: nothing is known of them, or they changed.
    """

    claims: list[Claim] = field(default_factory=list)
    resting: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)


class ClaimAttempt:
    """One batch on its way.

    The claim is sent where the answer to the read arrives, on the session's thread, so that those
    of several batches are under way together: the server answers a read only when the writes sent
    before it are done. :meth:`finish` waits.
    """

    def __init__(
        self,
        session: Session,
        reader: SizedReader,
        membership: Membership,
        names: Sequence[str],
        is_stopped: Callable[[], bool],
        *,
        most_values: int,
        record: tuple[Operation, ...] = (),
        known: dict[str, Any],
    ) -> None:
        """``known``: what was read ahead, by name; these are taken out of it."""
        self._record = record
        self._most_values = most_values
        self._session = session
        self.membership = membership
        self.names = list(names)
        self._is_stopped = is_stopped
        self._found = ClaimResult()
        self._wanted: list[Claim] = []
        self._taking: primitives.Future[list[Any] | None] | None = None
        self._is_judged = primitives.Event()
        self.was_refused = False
        """Whether another consumer was in the way."""
        self._rows = {name: known.pop(name) for name in names if name in known}
        self._asked = [name for name in names if name not in self._rows]
        if self._asked:
            self._reading = reader.read(self._asked)
        else:
            self._reading = primitives.Future()
            self._reading.set_result([])
        self._reading.add_done_callback(self._judge)

    def finish(self) -> ClaimResult:
        self._wait(self._reading)
        self._is_judged.wait()
        for round_left in reversed(range(_ROUNDS)):
            if self._taking is None:
                break
            error = self._wait(self._taking)
            if error is None:
                self._found.claims = self._wanted
                return self._found
            # Send nothing without waiting for it: it could succeed, and nobody would work on the
            # items.
            self._taking = None
            if self._may_try_again(error) and round_left:
                self._take()
        self._found.again += [claim.name for claim in self._wanted]
        return self._found

    def _judge(self, answer: primitives.Future[Any]) -> None:
        try:
            self._submit(answer)
        except Exception:
            log.exception("what was read could not be judged")
            self._found, self._wanted = ClaimResult(again=list(self.names)), []
        finally:
            self._is_judged.set()

    def _submit(self, answer: primitives.Future[Any]) -> None:
        """Judge what was read, and send the claim."""
        if answer.cancelled() or answer.exception() is not None:
            self._found.again += self.names
            return
        now, room = clock.now_ms(), self._most_values
        rows = self._rows | dict(zip(self._asked, answer.result(), strict=False))
        for name in self.names:
            if name not in rows:  # of what was asked for, only the first are read, as many as fit
                self._found.again.append(name)
                continue
            result = rows[name]
            if not isinstance(result, tuple):
                if isinstance(result, NoNode):
                    self._found.gone.append(name)
                else:
                    self._rest(name, result)
                continue
            claim = Claim(name, result[0], result[1], result[2], self.membership)
            if (until := claim.not_before_ms) > now:
                self._found.resting[name] = until
            elif self._wanted and claim.count > room:
                self._found.again.append(name)
            else:
                self._wanted.append(claim)
                room -= claim.count
        self._take()

    def _take(self) -> None:
        self._taking = None
        if self._wanted:
            operations = [op for claim in self._wanted for op in claim.operations]
            operations += self._record
            self._taking = self.membership.writer.submit(operations, are_valid=True)

    def _may_try_again(self, error: BaseException) -> bool:
        """Leave out other consumers' items; return whether the rest is worth another try."""
        if (
            isinstance(error, ConnectionLost)
            or not isinstance(error, ZooKeeperError)
            or error.index is None
        ):
            log.debug("nothing claimed error=%s", error)
            return False
        per_item = 2 if self.membership.is_locking else 1
        # somebody deleted the record: deaths are not counted then
        if error.index // per_item >= len(self._wanted):
            self._record = ()
            return True
        culprit = self._wanted[error.index // per_item].name
        if not isinstance(error, OVERTAKEN):
            self._rest(culprit, error)
            self._wanted = [claim for claim in self._wanted if claim.name != culprit]
            return True
        self.was_refused = True
        states = self._current_states()
        states.setdefault(
            culprit, self._found.locked if isinstance(error, NodeExists) else self._found.again
        )
        for name, status in states.items():
            status.append(name)
        self._wanted = [claim for claim in self._wanted if claim.name not in states]
        return True

    def _rest(self, name: str, error: object) -> None:
        self._found.resting[name] = clock.now_ms() + int(TROUBLE_S * 1000)
        phrase = "item cannot be claimed now queue=%s item=%s error=%s"
        log.warning(phrase, self.membership.paths.path, name, error)

    def _current_states(self) -> dict[str, list[str]]:
        """Those that are gone, changed, or locked; each with the list that it belongs to."""
        paths, found, ask = self.membership.paths, self._found, self._session.exists_async
        items = [ask(paths.item(claim.name)) for claim in self._wanted]
        is_locking = self.membership.is_locking
        locks = [ask(paths.lock(claim.name)) for claim in self._wanted if is_locking]
        if any(self._wait(answer) is not None for answer in (*items, *locks)):
            return {}
        states = {
            claim.name: found.locked
            for claim, lock in zip(self._wanted, locks, strict=False)
            if lock.result() is not None
        }
        for claim, item in zip(self._wanted, items, strict=True):
            if (stat := item.result()) is None:
                states[claim.name] = found.gone
            elif stat.version != claim.version:
                states.setdefault(claim.name, found.again)
        return states

    def _wait(self, future: primitives.Future[Any]) -> BaseException | None:
        """The future's error, once it is settled; stops waiting when the queue is being closed."""
        while True:
            try:
                return future.exception(_SLICE_S)
            except primitives.FutureTimeout:
                if self._is_stopped() and future.cancel():
                    return ConnectionLost("the queue is being closed")
