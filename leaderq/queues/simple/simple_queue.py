r"""Curator's ``SimpleDistributedQueue`` on the same znodes: ``qn-``\ n, raw bytes, no frame; offer
at one end, take at the other.

Who is authoritative: the znodes. Offers and claims each go through a
:class:`~leaderq.queues.writing.SequencedWriter` of this object's own, so each is applied exactly
once, whatever happens to its answer.

Curator lists the whole queue for every item. Here the list is used up first, and items are read
ahead (:mod:`leaderq.queues.simple.buffer`), so an item costs one write;
:meth:`SimpleDistributedQueue.poll_many` shares that write among many, and so do the threads of one
object. Claims are not ahead of those who ask, unless ``claim_ahead`` says so. On each failure:

* **answer to a claim or an offer lost, connection lost, session expired**: the writer finds out,
  and the same call goes on;
* **the caller's time is up while a claim is under way**: a claim that was not sent is withdrawn; an
  item whose claim is found to have succeeded later goes to the next who asks, and back to its old
  place if nobody does before :meth:`SimpleDistributedQueue.close` (takers that have listed the
  queue meanwhile find it there when their list is used up);
* **somebody else had it**: the next one is tried, and what was read ahead is read again;
* **queue path deleted, or reaped as a container** (CURATOR-308), at any moment: an offer makes it
  again; everything known is forgotten, for numbers then begin again, and an old name may come to
  stand for another item. Whoever waits goes on waiting;
* **foreign children**: left alone;
* **the process is killed**: what it has claimed and not yet seen is lost, as with Curator: one
  call's worth per thread, and what was claimed ahead. Its writers stay behind, below
  ``<path>-meta/writers``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from threading import TIMEOUT_MAX
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import ConfigurationError, ConnectionLost, NoNode, NotConnected, QueueEmpty, TooLarge
from leaderq.queues.simple.buffer import ReadItem
from leaderq.queues.simple.taker import ChangeSignal, LazyWriter, Taker
from leaderq.queues.wire.names import SIMPLE_PREFIX
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.queues.writing import SequencedWriter
from leaderq.zookeeper import AnyClient, Create, as_session
from leaderq.zookeeper.paths import join, validated_path

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
_ANSWER_S = 10.0
_OFFER_BYTES = 256  # of a request, beside the path and the data


class SimpleDistributedQueue:
    """A queue of bytes in ZooKeeper that a Java ``SimpleDistributedQueue`` may share. Thread-safe;
    needs no start.

    ``claim_ahead``: that many items more than asked for are claimed at once, if they are there, and
    given to the next callers of this object without a request; at ``close`` the rest goes back to
    its old place. Many times faster for one who takes item after item, but a process that is killed
    takes them with it, and nobody else gets them meanwhile.

    ``meta_path``: where the guards of its writes are kept, by default at ``<path>-meta``.

    *Guarantees:* an item offered without an error is stored once, in the order of the calls; an
    item is given to one caller only, of all processes and languages. A lone taker gets items in the
    order they were offered. ``None`` or :class:`~leaderq.errors.QueueEmpty` mean that the server
    asked knew of no item. *Not guaranteed:* an item taken is gone, whatever becomes of its taker
    (take items that must not be lost with a lock path: ``DistributedQueue``). Several takers in
    each other's way do not keep the order among themselves: one may get an item before another up
    to :data:`~leaderq.queues.simple.buffer.WIDEST` places in front of it.

    All methods but ``close`` raise :class:`~leaderq.errors.QueueClosed` after ``close``,
    ``SessionClosed`` after the session's end by its owner, and
    :class:`~leaderq.errors.ConnectionLost` if no answer came in the time given.
    """

    def __init__(self, client: AnyClient, path: str, *, claim_ahead: int = 0, meta_path: str | None = None) -> None:
        if claim_ahead < 0:
            raise ConfigurationError(f"claim_ahead={claim_ahead!r}: give 0 or more items")
        self._session = as_session(client)
        self._is_lent = self._session is client
        self.path = validated_path(path)
        if path == "/":
            raise ConfigurationError("a queue needs a path of its own; '/' is no place for one")
        self._paths = QueuePaths(path, meta_path=None if meta_path is None else validated_path(meta_path))
        tallies, mark = self._paths.tallies, uuid.uuid4()
        self._signal = ChangeSignal(self._session, path)
        self._offers = SequencedWriter(self._session, f"{tallies}/offers-{mark}")
        self._opened = LazyWriter(self._offers, self._signal, self._paths)
        claims = SequencedWriter(self._session, f"{tallies}/claims-{mark}")
        self._taker = Taker(self._session, path, claims, self._signal, self._paths, claim_ahead=claim_ahead)

    def __enter__(self) -> SimpleDistributedQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SimpleDistributedQueue({self.path!r})"

    def start(self) -> None:
        """Nothing: it begins at its first use. For whoever starts queues of all kinds, a sharder
        above all.
        """

    # -- offering -------------------------------------------------------------------------------------------------------

    def offer(self, data: bytes, timeout_s: float | None = None) -> None:
        """Put an item at the end. Returns when it is stored; ``timeout_s=None`` waits for that
        through any outage.

        :raises TooLarge: more than the server accepts; nothing was sent.
        :raises NotConnected: the time passed, and it was not sent, nor will be.
        :raises ConnectionLost: the time passed after it was sent: it may be stored, or yet will be.
        """
        self.offer_many([data], timeout_s)

    def offer_many(self, items: Iterable[bytes], timeout_s: float | None = None) -> None:
        """Put items at the end, each for itself, in this order, in as few requests as they fit in;
        else as :meth:`offer`.

        An error is that of the first item that it befell: those before it are stored, those behind
        it may be.
        """
        self._signal.guard()
        prefix = join(self.path, SIMPLE_PREFIX)
        operations = [(self._sized(Create(prefix, _as_bytes(item), sequential=True)),) for item in items]
        deadline = _deadline(timeout_s)
        self._opened.open(deadline)
        self._signal.wait_for_connection(deadline)
        futures = self._offers.submit_all(operations)
        try:
            for at in range(len(futures)):
                while not self._is_stored(futures[at], deadline):
                    futures[at] = self._offers.submit(operations[at])
        except FutureTimeout as exc:
            raise self._unsettled(futures) from exc
        finally:  # after an interruption too, nothing more is sent than what the caller knows of
            for future in futures:
                future.cancel()

    # -- taking ---------------------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float | None = None) -> bytes | None:
        """Take the item at the head; ``None`` if there is none, nor comes one within ``timeout_s``
        (``None``: no wait for one).
        """
        taken = self.poll_many(1, timeout_s)
        return taken[0] if taken else None

    def poll_many(self, max_items: int, timeout_s: float | None = None) -> list[bytes]:
        """As :meth:`poll`, up to ``max_items`` at once, in one write if nobody is in the way; does
        not wait for more than one.
        """
        if max_items < 1:
            raise ConfigurationError(f"max_items={max_items!r}: give 1 or more")
        if timeout_s is None:
            return self._taker.take(max_items, now_s(), grace_s=_ANSWER_S)
        return self._taker.take(max_items, _deadline(timeout_s))

    def take(self, timeout_s: float | None = None) -> bytes | None:
        """Take the item at the head, and wait for one if there is none: ``timeout_s`` at most, then
        ``None`` (``None``: for ever).
        """
        taken = self._taker.take(1, _deadline(timeout_s))
        return taken[0] if taken else None

    def remove(self) -> bytes:
        """Take the item at the head.

        :raises QueueEmpty: there is none.
        """
        item = self.poll()
        if item is None:
            raise QueueEmpty(f"queue {self.path} has no item to remove")
        return item

    def peek(self) -> bytes | None:
        """The item at the head, which stays there; ``None`` if there is none. The next moment
        somebody else may have taken it.
        """
        self._signal.guard()
        return self._taker.peek()

    def element(self) -> bytes:
        """As :meth:`peek`.

        :raises QueueEmpty: there is none.
        """
        item = self.peek()
        if item is None:
            raise QueueEmpty(f"queue {self.path} has no item to show")
        return item

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Let go of the queue; returns whether everything was settled in ``timeout_s``. May be
        called again.

        Callers that wait in other threads get :class:`~leaderq.errors.QueueClosed`, or their item
        if its claim was under way.
        """
        if not self._signal.close():
            return True
        deadline = now_s() + timeout_s
        is_clean, left = self._taker.close(timeout_s)
        returned = self._give_back(left)
        is_clean = self._offers.close(max(0.1, deadline - now_s())) and is_clean
        if not self._is_lent:
            self._session.close()
        lost = [held.name for held, future in zip(left, returned, strict=True) if not _is_done_well(future)]
        if lost:
            log.error("items %s of %s were claimed for nobody and could not be put back", ", ".join(lost), self.path)
        return is_clean and not lost

    # -- inside ---------------------------------------------------------------------------------------------------------

    def _is_stored(self, future: Future[Any], deadline: float) -> bool:
        """``False``: it was not, for the queue's path was taken away each time that it was made for
        it.
        """
        try:
            future.result(min(max(0.0, deadline - now_s()), TIMEOUT_MAX))
        except NoNode:
            if now_s() >= deadline:
                raise
            self._signal.guard()
            return False
        return True

    def _give_back(self, left: Sequence[ReadItem]) -> list[Future[Any]]:
        """Where they were: the name is free, and the place goes by the name."""
        if left:
            self._opened.try_to_open()
        return list(self._offers.submit_all([(Create(join(self.path, held.name), held.data),) for held in left]))

    def _sized(self, create: Create) -> Create:
        size, limit = len(create.data) + 4 * len(create.path) + _OFFER_BYTES, self._offers.limit
        if size > limit:
            raise TooLarge(f"an item of {self.path}", size=size, limit=limit, path=self.path)
        return create

    def _unsettled(self, futures: Sequence[Future[Any]]) -> ConnectionLost:
        is_sent = False
        for future in futures:
            is_sent = not (future.done() or future.cancel()) or is_sent
        if is_sent:
            return ConnectionLost(
                f"no answer in the time given: what was offered to {self.path} may be stored, or yet will be", path=self.path
            )
        return NotConnected(
            f"what is left of the offer to {self.path} was not sent in the time given, nor will be", path=self.path
        )


def _is_done_well(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _as_bytes(item: bytes) -> bytes:
    if not isinstance(item, bytes | bytearray | memoryview):
        raise TypeError(f"a simple queue takes bytes, not {type(item).__name__}")
    return bytes(item)


def _deadline(timeout_s: float | None) -> float:
    return float("inf") if timeout_s is None else now_s() + timeout_s
