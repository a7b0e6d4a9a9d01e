"""The career of a leader that drains Kafka with coroutines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from leaderq.async_term import AsyncTerm
from leaderq.base.arguments import require_finished
from leaderq.career import perform
from leaderq.events import Stage
from leaderq.kafka.career import KafkaCareer, is_ours
from leaderq.kafka.declaration import Declaration
from leaderq.kafka.handling.calls import CoroutineWorkers, HandleCalls
from leaderq.kafka.handling.context import RecordOrder
from leaderq.kafka.handling.on_error import PoisonRecord, is_about_records
from leaderq.kafka.record import Record
from leaderq.running.async_career import AsyncLeaderCareer
from leaderq.term import Term


class AsyncKafkaLeaderCareer(KafkaCareer, AsyncLeaderCareer):  # type: ignore[misc]  # execute
    """A :class:`KafkaLeaderCareer` whose methods are coroutine functions, on the event loop of an
    :class:`~leaderq.AsyncLeaderCareer`: subclass it, set ``topics``, and write ``async def
    handle_record(self, record, term)`` or ``async def handle(self, records, term)``; ``term`` is an
    :class:`~leaderq.AsyncTerm`. There is no ``execute``: the loop neither reads nor commits.

    The attributes are those of both classes, except ``workers``, and

    * ``concurrency`` (default 100): how many records are handled at a time, each in a call of its
      own. No more than these are begun.
    * ``order``: which records wait for each other: ``"partition"`` (default: as many at a time as
      there are partitions in the batch), ``"key"`` (those of one key, in one partition), or
      ``"none"``. With ``order = "partition"`` a :meth:`handle` of your own is given whole batches,
      and what it does side by side is its own affair. Records go one after the other with *at most
      once*, and with a store that ``handle`` writes to (``"external"``, a database).

    With ``offsets = "zookeeper"`` and ``"transaction"`` what a call writes or produces is kept with
    its record, and stored in the order of the log.

    *Guarantees:* those of a :class:`KafkaLeaderCareer`. When a record fails, ``on_error`` decides
    about it; the records beside it go on and are not repeated. At the end of the term no record is
    begun, except those that come before one that was begun. Calls under way are finished within the
    budget, or cancelled; then each partition is committed up to its first record that is not done.
    *Not guaranteed:* that nothing is repeated after a crash, or after calls were cancelled: up to
    ``max_records`` records are. While a coroutine blocks the loop, nothing else on it runs: see
    ``blocked_after_s``.
    """

    concurrency: ClassVar[int] = 100

    _called = (
        *(name for name in AsyncLeaderCareer._called if name != "execute"),
        *("handle", "handle_record", "load_offsets"),
    )
    _limits: Mapping[str, Any] = {}
    """The limits that the runner has set for the unit under way."""

    # ---- what the user writes --------------------------------------------------------------------

    async def handle(self, records: Sequence[Record], term: AsyncTerm) -> None:
        """Work on one batch; see :meth:`KafkaLeaderCareer.handle`. Override it or
        :meth:`handle_record`.
        """
        for record in records:
            try:
                returned: object = await self.handle_record(record, term)  # type: ignore[func-returns-value]
                require_finished(returned, "handle_record")
            except (PoisonRecord, GeneratorExit):  # the latter: this coroutine is thrown away
                raise
            except BaseException as exc:
                if not is_about_records(exc):
                    raise
                raise PoisonRecord(record) from exc

    async def handle_record(self, record: Record, term: AsyncTerm) -> None:
        """Work on one record. :meth:`handle`, unless you override it, calls this for each one."""
        raise NotImplementedError

    async def load_offsets(self, term: AsyncTerm) -> Mapping[Any, int]:
        """As :meth:`KafkaLeaderCareer.load_offsets`."""
        raise NotImplementedError

    # ---- what the runner calls -------------------------------------------------------------------

    def _perform(
        self,
        code: Callable[..., Any],
        *given: Any,
        stage: Stage | None = None,
        **limits: Any,
    ) -> None:
        if stage is Stage.EXECUTION and code == self.execute:
            self._limits = limits
            perform(code, *given)  # on this thread, which lets the loop handle what it has read
            return
        if code == self.prepare:
            self._running()
        try:
            super()._perform(code, *given, stage=stage, **limits)
        finally:
            if code == self.retire:
                self._put_away()

    def _on_loop(self, code: Callable[..., Any], *given: Any) -> None:
        super()._perform(code, *given, stage=Stage.EXECUTION, **self._limits)

    def _handle_on_loop(self, records: Sequence[Record], term: Term) -> None:
        self._on_loop(self.handle, records, term)

    def _calls(self) -> HandleCalls:
        return HandleCalls(self._handle_on_loop, self.handle)

    def _coroutines(self, declared: Declaration, calls: HandleCalls) -> CoroutineWorkers | None:
        has_batches = declared.order is RecordOrder.PARTITION and not is_ours(type(self).handle)
        if has_batches or declared.commits_first or not declared.may_be_side_by_side:
            return None
        return CoroutineWorkers(declared.concurrency, calls.awaited, self._on_loop)

    def _load_offsets(self, term: Term) -> Mapping[Any, int]:
        from leaderq.running.event_loop import Scope

        code = partial(self.load_offsets, AsyncTerm(term))
        scope = Scope(f"load_offsets of term {term.number}")
        found: Any = self._running_loop().run(code, scope, ends_scope=True)
        return found  # type: ignore[no-any-return]

    def _problems(self, declared: Declaration) -> Iterable[str]:
        yield from super()._problems(declared)
        if declared.workers != 1:  # as the class says, or the settings
            yield (
                f"workers={declared.workers!r} of {declared.where} are threads; use concurrency,"
                " for coroutines"
            )
