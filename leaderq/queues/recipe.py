"""What the four queues with framed items have in common; they differ in how items are named, and hence in the order they go in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, Generic, TypeVar

from leaderq.errors import ConfigurationError, LeaderqError, QueueClosed
from leaderq.queues.blocking import BlockingQueueConsumer
from leaderq.queues.consumer import ConsumePlan, QueueConsumer
from leaderq.queues.consuming import Consuming, Item, Warden
from leaderq.queues.keeping import Browsed, DeadLetters, Keeper, Purged
from leaderq.queues.places import Places
from leaderq.queues.putting import PutListener, Putter
from leaderq.queues.retrying import ErrorMode, RetryPolicy
from leaderq.queues.serializers import BYTES, QueueSerializer
from leaderq.queues.wire.kinds import Kind
from leaderq.zookeeper import AnyClient, Session, as_session
from leaderq.zookeeper.paths import validated_path

log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R", bound="Recipe[Any]")

_LEAST_CLOSE_S = 1.0


class Recipe(Generic[T]):
    """Base of the queues; use one of its subclasses.

    ``client``: a :class:`~leaderq.zookeeper.Session`, or a started ``KazooClient`` (which stays the caller's). ``path``: the queue's
    znode; made with its parents if it is not there. Keywords:

    * ``consumer``: a callable of the value, or a :class:`~leaderq.queues.QueueConsumer`; or ``consume_batch``: a callable of a list of up
      to ``batch_items`` values. Without either, the queue puts, and :meth:`take` gives items on request;
    * ``serializer``: ``BYTES``, ``TEXT``, ``JSON``, or any :class:`~leaderq.queues.QueueSerializer`;
    * ``lock_path``: where an item is marked as being worked on, so that a crash of its consumer does not lose it. All processes of one
      queue, Java's too, must be given the same;
    * ``max_items``: a put waits while the queue holds so many, tight among leaderq's producers;
    * ``put_in_background``: puts do not wait until stored; failures go to the listeners, :meth:`flush_puts` and :meth:`close`;
    * ``final_flush_s``: how long :meth:`close` waits, in seconds, for puts on their way, and for consumers at work;
    * ``concurrency`` items are worked on at a time, on threads of the queue or on ``executor``;
    * ``error_mode`` and ``retry``: what becomes of an item whose consumer raised;
    * ``compress``: write items as gzip (all readers must be leaderq, or Curator 5.8 with its compression switched on);
    * ``linger_s``: a put may wait so long for others to share a request with; 0: it does not wait if none are under way;
    * ``name``: in logs and names of threads.

    :raises ConfigurationError: some of this cannot be used.
    """

    KIND: ClassVar[Kind]

    def __init__(
        self,
        client: AnyClient,
        path: str,
        *,
        consumer: Callable[[T], object] | QueueConsumer[T] | None = None,
        consume_batch: Callable[[Sequence[T]], object] | None = None,
        serializer: QueueSerializer[T] = BYTES,  # type: ignore[assignment]
        lock_path: str | None = None,
        max_items: int | None = None,
        put_in_background: bool = False,
        final_flush_s: float = 5.0,
        executor: Executor | None = None,
        concurrency: int = 1,
        batch_items: int = 100,
        error_mode: ErrorMode = ErrorMode.REQUEUE,
        retry: RetryPolicy | None = None,
        compress: bool = False,
        linger_s: float = 0.0,
        name: str | None = None,
        min_items_before_refresh: int = 0,
    ) -> None:
        places = Places(validated_path(path), None if lock_path is None else validated_path(lock_path))
        if path == "/" or lock_path == path:
            raise ConfigurationError(
                f"path={path!r}, lock_path={lock_path!r}: give the queue and its locks znodes of their own"
            )
        if self.KIND is Kind.ID and "|" in path:
            raise ConfigurationError(f"path {path!r} of an id queue holds '|', which separates the ids in it")
        self._plan = ConsumePlan(
            serializer=serializer,
            consumer=consumer,
            consume_batch=consume_batch,
            batch_items=batch_items,
            concurrency=concurrency,
            executor=executor,
            error_mode=error_mode,
            retry=retry or RetryPolicy(),
            min_items_before_refresh=min_items_before_refresh,
        )
        self._is_lent = isinstance(client, Session)
        self._session = as_session(client)
        self._places = places
        self._name = name
        self._final_flush_s = final_flush_s
        self._putter: Putter[T] = Putter(
            self._session,
            places,
            serializer,
            max_items=max_items,
            put_in_background=put_in_background,
            final_flush_s=final_flush_s,
            compress=compress,
            linger_s=linger_s,
            name=name,
        )
        self._keeper = Keeper(self._session, places, self.KIND)
        self._lock = threading.Lock()
        self._consuming: Consuming[T] | None = None
        self._warden = Warden(self._session, places, self.KIND) if lock_path is not None else None
        self._is_started = self._is_closed = self._is_paused = False

    @property
    def path(self) -> str:
        """The queue's znode."""
        return self._places.path

    @property
    def lock_path(self) -> str | None:
        """Where items being worked on are marked."""
        return self._places.lock_path

    # -- its life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the queue's znodes, and begin to consume if there is a consumer; does nothing if that was done.

        :raises QueueClosed: it was closed; make a new one.
        :raises ConnectionLost: the servers did not answer within some 15 s.
        """
        with self._lock:
            if self._is_closed:
                raise QueueClosed(f"queue {self.path} was closed; make a new one")
            if self._is_started:
                return
            self._putter.start()
            self._is_started = True
            if self._warden is not None:
                self._warden.start()
            if self._plan.consumer is not None or self._plan.consume_batch is not None:
                self._begin()

    def close(self) -> None:
        """Stop consuming (what is begun is finished), see to the puts on their way, and leave. Takes ``final_flush_s`` for each at
        most, and never hangs; a put that is waiting elsewhere raises ``QueueClosed``. May be called again.

        :raises PutsFailed: puts in the background failed, and nobody has been told yet.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            consuming = self._consuming
            if self._warden is not None:
                self._warden.close()
        if isinstance(self._plan.consumer, BlockingQueueConsumer):
            self._plan.consumer.close()
        try:
            if consuming is not None and not consuming.close(max(_LEAST_CLOSE_S, self._final_flush_s)):
                log.warning("queue %s: its consumer was still at work when it was closed", self.path)
        finally:
            try:
                self._putter.close()
            finally:
                if not self._is_lent:
                    self._session.close()

    def __enter__(self: R) -> R:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except LeaderqError:
            if error is None:
                raise
            log.exception("queue %s: closing it failed, after an error", self.path)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "started" if self._is_started else "new"
        return f"{type(self).__name__}({self.path!r}, {state})"

    # -- putting, as far as it is the same for all ------------------------------------------------------------------------

    def add_put_listener(self, listener: PutListener) -> None:
        """``listener`` hears of each item stored, and of each that was not."""
        self._putter.add_listener(listener)

    def remove_put_listener(self, listener: PutListener) -> None:
        """Undo :meth:`add_put_listener`."""
        self._putter.remove_listener(listener)

    def flush_puts(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was put is stored or has failed, and listeners have heard; whether that came in ``timeout_s`` seconds.

        :raises PutsFailed: puts in the background have failed since the last time, and there was no listener to tell.
        """
        return self._putter.flush(timeout_s)

    # -- consuming ------------------------------------------------------------------------------------------------------

    def take(self, timeout_s: float | None = None) -> Item[T] | None:
        """The next item, or ``None`` if there is none within ``timeout_s`` seconds (``None``: wait until there is one).

        Acknowledge it with ``item.ack()``, or leave its ``with`` block without an error.

        :raises QueueClosed: not started, closed meanwhile, or the queue has a consumer.
        """
        with self._lock:
            if not self._is_started or self._is_closed:
                raise QueueClosed(f"queue {self.path} is {'closed' if self._is_closed else 'not started; call start()'}")
            consuming = self._consuming or self._begin()
        return consuming.take(timeout_s)

    def pause(self) -> None:
        """This object begins no new item until :meth:`resume`; others are not concerned (for all of them: ``leaderq queue pause``)."""
        with self._lock:
            self._is_paused = True
            if self._consuming is not None:
                self._consuming.pause()

    def resume(self) -> None:
        """Undo :meth:`pause`; an operator's pause stands."""
        with self._lock:
            self._is_paused = False
            if self._consuming is not None:
                self._consuming.resume()

    @property
    def is_paused(self) -> bool:
        """Whether this object begins no new item, by :meth:`pause` or by an operator."""
        consuming = self._consuming
        return self._is_paused if consuming is None else consuming.is_paused

    def set_error_mode(self, mode: ErrorMode) -> None:
        """As the keyword ``error_mode``.

        :raises ConfigurationError: the queue consumes already.
        """
        with self._lock:
            if self._consuming is not None:
                raise ConfigurationError(f"queue {self.path} consumes already; set its error mode before start()")
            self._plan = replace(self._plan, error_mode=mode)

    def _begin(self) -> Consuming[T]:
        consuming = Consuming(self._session, self._places, self.KIND, self._plan, name=self._name)
        if self._is_paused:
            consuming.pause()
        consuming.start()
        self._consuming = consuming
        return consuming

    # -- looking --------------------------------------------------------------------------------------------------------

    def depth(self) -> int:
        """How many znodes the queue has, those being worked on included; one request, whatever the number."""
        return self._keeper.depth()

    def browse(self, limit: int | None = None) -> Iterator[Browsed]:
        """The items that lie there now, in the order they go in; nothing is taken."""
        return self._keeper.browse(limit)

    def purge(self, *, held_too: bool = False) -> Purged:
        """Delete the items that lie there now; those being worked on stay unless ``held_too``."""
        return self._keeper.purge(held_too=held_too)

    @property
    def dead_letters(self) -> DeadLetters:
        """The items that were given up: ``count``, ``browse``, ``requeue``, ``drop``."""
        return self._keeper.letters
