"""Makes items ours, many in one multi.

First they are read (one multiRead), then claimed *as read*: with a lock path by ``Create(lock)`` and ``Check(item, version)``, else by
``Delete(item, version)``. So nobody ever works on data that was not there at the moment of the claim, and a lock never stands for an
item that is gone. Both go through the hold's tally: a lost reply neither loses an item (Curator's F2) nor leaves a lock that nobody
knows of (F6).

A multi is all or none. If one item is somebody else's, all are looked at again, those taken are left out, and the rest is tried
again. After some rounds the rest is left for the next attempt.

What happens on each failure: *item gone, locked, changed*: left out; *not to be touched yet* (its note says so): left to rest;
*unreadable*: claimed all the same, so that it can be set aside; *connection lost*: the tally finds out; *session over* with a lock path:
nothing is ours.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any

from leaderq.errors import ConnectionLost, LeaderqError, NodeExists, NoNode, ZooKeeperError
from leaderq.queues.consuming.claim import Claim, Hold
from leaderq.queues.consuming.operations import claiming, now_ms
from leaderq.zookeeper import GetData, Session

log = logging.getLogger(__name__)

ROUNDS = 3
_LOOK_S = 0.5


@dataclass
class Claimed:
    """What came of trying to claim some names. ``resting``: until when, in ms. ``gone``: deleted by others. ``locked``: others work on
    them. ``again``: nothing is known of them, or they changed."""

    claims: list[Claim] = field(default_factory=list)
    resting: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)


class Claiming:
    """One batch on its way. The claim is sent where the answer to the read arrives, on the session's thread, so that those of several
    batches are under way together: the server answers a read only when the writes sent before it are done. :meth:`finish` waits."""

    def __init__(self, session: Session, hold: Hold, names: Sequence[str], is_stopped: Callable[[], bool]) -> None:
        self._session = session
        self._hold = hold
        self._names = list(names)
        self._is_stopped = is_stopped
        self._found = Claimed()
        self._wanted: list[Claim] = []
        self._taking: Future[list[Any] | None] | None = None
        self._is_judged = threading.Event()
        self._reading = self._read(self._names)
        self._reading.add_done_callback(self._judge)

    def finish(self) -> Claimed:
        """Wait for the outcome."""
        self._wait(self._reading)
        self._is_judged.wait()
        for round_left in reversed(range(ROUNDS)):
            if self._taking is None:
                break
            error = self._wait(self._taking)
            if error is None:
                self._found.claims = self._wanted
                return self._found
            # Nothing may be sent that is not waited for: it could succeed, and nobody would work on the items.
            self._taking = None
            if self._may_try_again(error) and round_left:
                self._take()
        self._found.again += [claim.name for claim in self._wanted]
        return self._found

    # -- inside ---------------------------------------------------------------------------------------------------------

    def _read(self, names: Sequence[str]) -> Future[Any]:
        return self._session.read_named_async(self._hold.places.path, names)

    def _judge(self, answer: Future[Any]) -> None:
        try:
            self._submit(answer)
        except Exception:
            log.exception("what was read could not be judged")
            self._found, self._wanted = Claimed(again=list(self._names)), []
        finally:
            self._is_judged.set()

    def _submit(self, answer: Future[Any]) -> None:
        """Judge what was read, and send the claim."""
        if answer.cancelled() or answer.exception() is not None:
            self._found.again += self._names
            return
        now = now_ms()
        for name, result in zip(self._names, answer.result(), strict=True):
            if isinstance(result, LeaderqError):
                (self._found.gone if isinstance(result, NoNode) else self._found.again).append(name)
                continue
            claim = Claim(name, result[0], result[1], result[2], self._hold)
            if (until := claim.not_before_ms) > now:
                self._found.resting[name] = until
            else:
                self._wanted.append(claim)
        self._take()

    def _take(self) -> None:
        self._taking = None
        if self._wanted:
            self._taking = self._hold.tally.submit([op for claim in self._wanted for op in claiming(claim)])

    def _may_try_again(self, error: BaseException) -> bool:
        """Leave out what is somebody else's; whether it is worth trying with the rest."""
        if isinstance(error, ConnectionLost) or not isinstance(error, ZooKeeperError) or error.index is None:
            log.debug("nothing could be claimed: %s", error)
            return False
        per_item = 2 if self._hold.is_locking else 1
        culprit = self._wanted[error.index // per_item].name
        fates = self._fates()
        fates.setdefault(culprit, self._found.locked if isinstance(error, NodeExists) else self._found.again)
        for name, fate in fates.items():
            fate.append(name)
        self._wanted = [claim for claim in self._wanted if claim.name not in fates]
        return True

    def _fates(self) -> dict[str, list[str]]:
        """Which of the wanted ones are gone, changed, or locked; each with the list that it belongs to."""
        places, found = self._hold.places, self._found
        names = [claim.name for claim in self._wanted]
        paths = [places.item(name) for name in names]
        if self._hold.is_locking:
            paths += [places.lock(name) for name in names]
        answer = self._session.multi_read_async([GetData(path) for path in paths])
        if self._wait(answer) is not None:
            return {}
        found_at: list[Any] = answer.result()
        items, locks = found_at[: len(names)], found_at[len(names) :]
        fates = {name: found.locked for name, lock in zip(names, locks, strict=False) if not isinstance(lock, NoNode)}
        for claim, item in zip(self._wanted, items, strict=True):
            if isinstance(item, NoNode):
                fates[claim.name] = found.gone
            elif isinstance(item, LeaderqError) or item[1].version != claim.version:
                fates.setdefault(claim.name, found.again)
        return fates

    def _wait(self, future: Future[Any]) -> BaseException | None:
        """The future's error, once it is settled; stops waiting when the queue is being closed."""
        while True:
            try:
                return future.exception(_LOOK_S)
            except FutureTimeout:
                if self._is_stopped() and future.cancel():
                    return ConnectionLost("the queue is being closed")
