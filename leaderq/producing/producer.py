"""A producer that takes requests at once, and sends and confirms them in the background.

The sink is authoritative about what is confirmed, the journal about what survives this process, the
account (:mod:`leaderq.producing.account`, with the states) about everything else. On each failure:

* **the sink is slow, unreachable or refuses everything**: requests gather in memory until that is
  full, then in the journal, and are sent in order when it is back; callers notice nothing;
* **memory is full and there is no journal, or the journal is full**: ``when_full`` decides;
* **the sink refuses one record, or a deadline passes**: that request fails, is counted by its
  reason, told to ``dropped_listener`` and raised from its future;
* **the disk refuses a write**: what was accepted keeps its place, and is written as soon as the
  disk takes it, or is sent before that. Nothing is lost while this process lives. A write-ahead
  call that waited for the disk raises; until the disk takes something, ``when_full`` decides about
  new ones. It is in the log once, in :meth:`snapshot` and in ``/metrics``;
* **the disk is slow**: a caller waits a second for it, then ``when_full`` decides;
* **the process is killed**: what is in the journal is sent when a producer opens it again, perhaps
  for the second time. Without ``persistence`` that is what was spilled, with it everything for
  which ``send`` has returned, as far as its policy goes;
* **a record of the journal is not a request** for this codec and key: it is kept there, counted
  apart, and the others are sent. If all that is read first is of that kind, the producer does not
  start;
* **a request is changed after it was sent**: do not; the journal gets it as it is when it is
  spilled, and if the codec refuses it, it is sent from memory only;
* **a fork**: in the child every call raises ``ProducerClosed``, except ``close`` and the end of a
  block, which do nothing;
* **Ctrl-C**, or any exception thrown into a thread: the call raises it, and its request was taken
  or not; no other is touched. In a close: it drops its wait for pending requests; a second Ctrl-C
  makes it raise at once, and closing goes on in the background.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic

from leaderq.base import clock
from leaderq.base.arguments import plain_function, require, timeout
from leaderq.base.timeouts import AS_SET
from leaderq.errors import (
    ConfigurationError,
    LeaderqError,
    ProducerClosed,
    RequestsLost,
    RequestTooLarge,
    WouldDeadlock,
    told,
)
from leaderq.observability import tracing
from leaderq.observability.figures import FigureSource, offer_figures
from leaderq.producing.account import BufferState, LossReason, Lost, Settlement, Snapshot
from leaderq.producing.buffer import Admission, RequestBuffer
from leaderq.producing.codec import PLAIN, Codec, is_sure, serialized
from leaderq.producing.journal import EVERY_ITEM, Journal, Policy
from leaderq.producing.journal.journal import ttl_problem
from leaderq.producing.listeners import OnDurable
from leaderq.producing.options import Block, FullPolicy, ProducerOptions
from leaderq.producing.request import BufferedRequest, measured, require_hash
from leaderq.producing.sending import Shutdown, SinkSender, journal_reader
from leaderq.producing.sinks import Sink, require_sink
from leaderq.producing.spill import Spill
from leaderq.threads import Retry, TaskWaker, Waker, primitives
from leaderq.threads.event_loops import awaited

log = logging.getLogger(__name__)

FOR_EVER: Final = Retry(most_s=2.0)
_EXIT_S = 2.0
_DURABLE_S = 60.0
_FORCED_S = 1.0
if TYPE_CHECKING:
    from typing_extensions import (
        TypeVar,  # of type checkers: a bare BufferedProducer takes anything
    )

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class BufferedProducer(Generic[T]):
    """Accepts requests faster than ``sink`` can take them, and loses none silently.

    For type checkers a ``BufferedProducer[Click]`` takes clicks; ``key`` tells too.

    *Guarantees:* ``accepted + recovered == confirmed + pending + dropped + failed`` at every moment
    (:meth:`snapshot`). Confirmed means acknowledged by the sink. Requests of one key (without
    ``key``: all) reach the sink in the order in which they were accepted, also over retries,
    spilling and restarts; one that fails alone is left out. With a journal, what was spilled
    survives the process; with ``persistence`` as well, every accepted request does: *at least
    once*. *Not guaranteed:* exactly once: after a crash, or a lost acknowledgement, a request may
    reach the sink twice (then in order again). Without a journal, anything about pending requests
    when the process dies.

    Keywords:

    * ``key`` returns the key of a request: one that cannot be sent holds up its own requests only;
    * ``max_items``, ``max_bytes``: bounds of the memory, everything that is on its way included;
      spilling begins when it is full, and the journal is read again when half of it is free;
    * ``batch_items``, ``batch_bytes``, ``linger_s``: a batch is sent when one of them is reached;
    * ``journal``: a :class:`~leaderq.producing.Journal`, which stays the caller's, or the path of
      one. ``persistence``: with ``None``, only requests that do not fit into memory are journaled,
      and those left at the close. Else it is a policy of the journal, and every request goes there
      first: with ``EVERY_ITEM`` :meth:`send` returns when it is on the disk, with the others at
      once. A given journal must have that policy;
    * ``codec``: requests as bytes for the journal (default:
      :class:`~leaderq.producing.codec.PlainCodec`);
    * ``when_full``: :class:`Block` or :class:`WhenFull` (with a journal not ``DROP_OLDEST``);
    * ``ttl_s``: requests are dropped if their turn comes after so many seconds;
    * ``retry``, ``sink_timeout_s``: how the sink is tried again, and how long it may take;
    * ``dropped_listener`` is called with each :class:`~leaderq.producing.Lost` request: one call at
      a time, on whichever thread; its errors are logged. At most 10,000 calls wait for a slow one;
    * ``close_timeout_s``: for :meth:`close` and the end of a ``with`` block;
    * ``name``: in the log, of its threads, and the label of its figures in ``/metrics``.

    Each ``timeout_s`` is in seconds, and ``None`` waits for ever.

    :raises ConfigurationError: some of it cannot be used. Opening a journal raises what
        :class:`~leaderq.producing.Journal` says.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        key: Callable[[T], Hashable] | None = None,
        max_items: int = 10_000,
        max_bytes: int = 64 << 20,
        batch_items: int = 1000,
        batch_bytes: int = 1 << 20,
        linger_s: float = 0.005,
        journal: Journal | Path | str | None = None,
        persistence: Policy | None = None,
        codec: Codec = PLAIN,
        when_full: FullPolicy = Block(60.0),  # noqa: B008 - frozen
        ttl_s: float | None = None,
        retry: Retry = FOR_EVER,
        sink_timeout_s: float = 10.0,
        dropped_listener: Callable[[Lost], object] | None = None,
        close_timeout_s: float | None = 10.0,
        name: str = "producer",
    ) -> None:
        given = locals()
        names = [one.name for one in fields(ProducerOptions)]
        self._options = options = ProducerOptions(**{name: given[name] for name in names})
        options.check(has_journal=journal is not None)
        require_sink(sink)
        if journal is None and persistence is not None:
            raise ConfigurationError(
                f"persistence={persistence!r} needs a journal; give its directory as journal=..."
            )
        methods = ("serialize", "deserialize")
        require(*(plain_function(f"the codec's {m}", getattr(codec, m, None)) for m in methods))
        self._codec = codec
        self._is_foreign = False  # whether this process is a fork of that which made it
        self._is_plain = all(one is None for one in (key, persistence, ttl_s))
        """Whether nothing need be known of a request but its order."""
        self._with_context = getattr(sink, "with_context", None)
        self._spill = None if journal is None else Spill(journal, persistence, codec, key)
        self._buffer = RequestBuffer(options, self._spill)
        self._sender = SinkSender(self._buffer, sink, options)
        services = [self._sender.service]
        if self._spill is not None:
            services.append(journal_reader(self._buffer, self._spill, name))
        self._shutdown = Shutdown(self._buffer, sink, services, name)
        try:
            for service in services:
                service.start()
        except BaseException:  # the system has no thread left
            self.close(0.0)
            raise
        _all.add(self)
        offer_figures(FigureSource.PRODUCER, name, self, _figures)

    def send(
        self,
        request: T,
        *,
        ttl_s: float | None = None,
        timeout_s: float | None = AS_SET,
        on_durable: OnDurable | None = None,
    ) -> bool:
        """Take a request, and return at once; with ``persistence=EVERY_ITEM`` when it is on the
        disk, with ``Every(n)`` when fewer than ``n`` are on their way to the file. Return ``True``,
        or ``False`` if ``when_full`` has dropped this request.

        ``timeout_s`` replaces that of ``Block``. With ``persistence`` and ``on_durable``, ``send``
        returns at once in any case, and ``on_durable`` is called once for a request that was taken,
        on the journal's thread: with ``None`` when the request is as durable as the policy says,
        else with the error.

        May be called by a finalizer, a signal handler, a logging handler, and by any function that
        the producer itself calls: it never waits for its own thread. (A logging handler of the
        whole program should not wait for room either, ``timeout_s=0``: the producer's own threads
        may log meanwhile.) In ``asyncio`` use :meth:`asend`.

        The request was not taken if one of these is raised:

        :raises BufferFull: there was no room (in time).
        :raises ProducerClosed: the producer is closed.
        :raises RequestTooLarge: the request is larger than ``max_bytes``.
        :raises WouldDeadlock: this call interrupts its own thread inside the producer.
        :raises ConfigurationError: the codec has no bytes for it, ``key`` returned something that
            has no hash, ``timeout_s`` is not a time, or ``on_durable`` is not a plain function.
            Whatever ``key`` raises.

        The request was taken if one of these is raised:

        :raises JournalSlow: the disk takes nothing, or did not answer in a minute. The request is
            written when it does, and sent, unless this process dies before.
        :raises JournalClosed, JournalFailed, JournalFull: another thread has closed the producer
            meanwhile, and the disk did not take the request, which is lost.
        """
        spill = self._spill
        if (
            self._is_plain
            and ttl_s is None
            and on_durable is None
            and timeout_s is AS_SET
            and (self._with_context is None or not tracing.is_within_span())
            and (spill is None or is_sure(self._codec, request))
            and self._buffer.take_at_once(request, measured(request))
        ):
            return True
        one = self._entered(request, ttl_s, timeout_s)
        if on_durable is not None:
            require(plain_function("on_durable", on_durable))
            if spill is None or not spill.is_write_ahead:
                raise ConfigurationError(
                    "on_durable needs a journal and persistence: without them an accepted request "
                    "is not on disk"
                )
        elif spill is not None and spill.every == 1 and spill.journal.is_writer:
            raise WouldDeadlock(
                "a callback on the journal's thread was about to wait for that thread; nothing was "
                "accepted. Have another thread send"
            )
        is_taken = self._admit(one, timeout_s, on_durable)
        end_id = spill.awaited_id(one) if spill is not None and on_durable is None else None
        if spill is not None and end_id is not None:
            spill.journal.await_stored(end_id, timeout_s=_DURABLE_S)
        return is_taken

    def submit(
        self, request: T, *, ttl_s: float | None = None, timeout_s: float | None = AS_SET
    ) -> primitives.Future[Any]:
        """As :meth:`send`, without waiting for the disk; the future is done when the sink has
        confirmed the request.

        It returns where the record is, if the sink tells: ``KafkaSink`` a ``KafkaPlace`` of topic,
        partition and offset. It raises :class:`~leaderq.errors.RequestGivenUp` if the request was
        dropped or has failed, and :class:`~leaderq.errors.ProducerClosed` if the producer was
        closed and the request is in the journal, under the error's ``record_id``. Cancelling the
        future does not cancel the request.
        """
        one = self._entered(request, ttl_s, timeout_s)
        waiter: primitives.Future[Any] = primitives.Future()
        one.waiter = waiter
        self._admit(one, timeout_s, None)
        return waiter

    async def asend(
        self, request: T, *, ttl_s: float | None = None, timeout_s: float | None = AS_SET
    ) -> bool:
        """As :meth:`send`, for ``asyncio``: waits for room and for the disk without blocking the
        event loop. If the task is cancelled while it waits for room, the request was not taken;
        while it waits for the disk, the request was taken.
        """
        waker, spill = TaskWaker(), self._spill
        one = self._entered(request, ttl_s, timeout_s)
        admission = self._admission(one, timeout_s, None, waker.wake)
        try:
            while (wait_s := admission.attempt()) is not None:
                await waker.wait(wait_s)
        finally:
            admission.leave()
        if spill is not None and (end_id := spill.awaited_id(one)) is not None:
            await spill.journal.aawait_stored(end_id, timeout_s=_DURABLE_S)
        return admission.is_placed

    def _entered(self, request: T, ttl_s: float | None, timeout_s: float | None) -> BufferedRequest:
        self._refuse_in_child()
        if timeout_s is not AS_SET:
            require(timeout("timeout_s", timeout_s))
        options, spill, data = self._options, self._spill, None
        if spill is not None and (spill.is_write_ahead or not is_sure(self._codec, request)):
            data = serialized(self._codec, request)
        size = measured(request) if data is None else len(data)
        if size > options.max_bytes:
            self._buffer.refuse("too large")
            raise RequestTooLarge(size=size, limit=options.max_bytes)
        one = BufferedRequest(request, size, clock.now_s())
        if options.key is not None:
            one.key = options.key(request)
            require_hash(one.key)
        if ttl_s is not None or options.ttl_s is not None:
            require(ttl_problem(ttl_s))
            one.deadline = one.since_s + (options.ttl_s if ttl_s is None else ttl_s)  # type: ignore[operator]
        one.data = data
        if self._with_context is not None and tracing.is_within_span():
            one.output = self._with_context(request)
        return one

    def _admission(
        self,
        one: BufferedRequest,
        timeout_s: float | None,
        on_durable: OnDurable | None,
        wake: Callable[[], object],
    ) -> Admission:
        policy = self._options.when_full
        if timeout_s is AS_SET:
            timeout_s = policy.timeout_s if isinstance(policy, Block) else None
        if self._shutdown.is_own_thread:
            timeout_s = 0.0  # a thread that makes room must not wait for it
        return Admission(self._buffer, one, policy, timeout_s, on_durable, wake)

    def _admit(
        self, one: BufferedRequest, timeout_s: float | None, on_durable: OnDurable | None
    ) -> bool:
        if self._buffer.take_at_once(one.request, one.size, one):
            return True
        waker = Waker()
        admission = self._admission(one, timeout_s, on_durable, waker.wake)
        try:
            while (wait_s := admission.attempt()) is not None:
                waker.wait(wait_s)
        finally:
            admission.leave()
        return admission.is_placed

    def _refuse_in_child(self) -> None:
        # Before any lock, which in a forked child may be held for ever.
        if self._is_foreign:
            raise ProducerClosed(
                "this producer belongs to the process that this one was forked from; make one "
                "after the fork"
            )

    def snapshot(self) -> Snapshot:
        """Return all figures; those of the buffer are of one moment."""
        self._refuse_in_child()
        return self._buffer.look(self._seen)

    def _seen(self, buffer: RequestBuffer) -> Snapshot:
        sender, spill = self._sender, self._spill
        oldest, balance = buffer.oldest, buffer.balance()
        return Snapshot(
            state=buffer.state,
            balance=balance,
            memory_items=buffer.items,
            memory_bytes=buffer.bytes,
            journal_only=buffer.unread,
            journal_bytes=0 if spill is None else spill.journal.bytes_used,
            oldest_age_s=0.0 if oldest is None else max(0.0, clock.now_s() - oldest.since_s),
            spilled=buffer.spilled,
            batches=sender.batches,
            retries=sender.retries,
            sink_error=_text(sender.last_error),
            journal_error=None
            if spill is None
            else _text(spill.journal.trouble or spill.last_error),
            journal_takes=spill is None or buffer.is_closing or spill.has_room,
            lost={**balance.dropped, **balance.failed},
        )

    @property
    def state(self) -> BufferState:
        """Where a new request goes."""
        return self._buffer.state

    def __repr__(self) -> str:
        state = "closed" if self._buffer.is_closing else self.state.value
        return f"BufferedProducer({self._options.name!r}, {state})"

    def flush(self, timeout_s: float | None = 10.0) -> Settlement:
        """Wait until every request accepted before this call is confirmed or given up, for at most
        ``timeout_s`` seconds. Then force the journal's records to the disk, which may take as long
        again, and at least a second. Return what became of the requests: true only if each is
        confirmed or safely in the journal; otherwise it says how many are not, which, and why.

        Called by a listener, it does not wait for requests.
        """
        self._refuse_in_child()
        require(timeout("timeout_s", timeout_s))
        if self._shutdown.is_own_thread:
            timeout_s = 0.0  # a thread that settles requests must not wait for that
        up_to = self._buffer.line_end()
        self._buffer.wait_settled(timeout_s, up_to)
        settlement, spill = self._buffer.settlement(up_to), self._spill
        is_safe = spill is None or spill.journal.sync == EVERY_ITEM or self._shutdown.is_over
        if spill is None or is_safe or not settlement.journaled:
            return settlement
        spill.flush(None if timeout_s is None else max(timeout_s, _FORCED_S))
        return self._buffer.settlement(up_to)

    def close(self, timeout_s: float | None = AS_SET) -> Settlement:
        """Accept nothing more, wait ``timeout_s`` (default ``close_timeout_s``) for pending
        requests, and close everything.

        Returns, as :meth:`flush`, what became of all requests that this producer has accepted.
        Requests in the journal are sent when that is opened again; without a journal they are lost
        as *closed before it was sent*. Takes a few seconds more at worst (a sink that hangs is left
        behind).

        May be called again, and by several threads; each waits for the same end. Called by a
        listener, it returns at once, and closing continues in the background.
        """
        if self._is_foreign:
            return Settlement()
        wait_s = self._options.close_timeout_s if timeout_s is AS_SET else timeout_s
        require(timeout("timeout_s", wait_s))
        if not self._shutdown.is_over:
            self._buffer.close_entry()
            try:
                self._shutdown.begin(wait_s)
                self._shutdown.wait(wait_s)
            except BaseException:  # Ctrl-C: pending requests are put away without waiting for them
                self._buffer.close_entry(is_end=True)
                self._shutdown.begin(0.0)
                self._shutdown.wait(0.0)
                raise
        return self._buffer.settlement()

    async def aflush(self, timeout_s: float | None = 10.0) -> Settlement:
        """As :meth:`flush`, without blocking the event loop."""
        return await awaited(partial(self.flush, timeout_s), "leaderq-flush")

    async def aclose(self, timeout_s: float | None = AS_SET) -> Settlement:
        """As :meth:`close`, for ``asyncio``. If the task is cancelled, closing continues in the
        background.
        """
        return await awaited(partial(self.close, timeout_s), "leaderq-close")

    async def __aenter__(self) -> BufferedProducer:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        _require_settled(await self.aclose(), error)

    def __enter__(self) -> BufferedProducer:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Close the producer.

        :raises RequestsLost: requests were lost, other than those that a policy of yours dropped.
            This is not raised if the block itself raised.
        """
        _require_settled(self.close(), error)


def _require_settled(settlement: Settlement, error: BaseException | None) -> None:
    if error is None and not settlement.is_as_chosen:
        raise RequestsLost(str(settlement), settlement)


def _figures(producer: BufferedProducer[Any]) -> dict[str, float]:
    found = producer.snapshot()
    counts = ("accepted", "recovered", "confirmed", "pending")
    sums = ("dropped", "failed", "refused")
    levels = ("memory_items", "memory_bytes", "journal_bytes", "oldest_age_s")
    figures = {name: getattr(found, name) for name in (*levels, "batches", "retries", "spilled")}
    figures |= {name: getattr(found.balance, name) for name in counts}
    figures |= {name: sum(getattr(found.balance, name).values()) for name in sums}
    figures |= {f"lost:{one.value}": found.lost.get(one.value, 0) for one in LossReason}
    figures |= {f"state:{one.value}": found.state is one for one in BufferState}
    return {**figures, "takes": found.journal_takes}


def _text(error: BaseException | None) -> str | None:
    return None if error is None else told(error)


_all: weakref.WeakSet[BufferedProducer[Any]] = weakref.WeakSet()


def _close_at_exit() -> None:
    """Close the producers that a program has not closed at its end, so that pending requests get
    into the journals, or their loss is logged.
    """
    for producer in list(_all):
        try:
            producer.close(_EXIT_S)
        except LeaderqError:
            log.exception("closing at exit failed producer=%r", producer)


def _leave_to_parent() -> None:
    for producer in list(_all):
        producer._is_foreign, producer._is_plain = True, False


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_leave_to_parent)
