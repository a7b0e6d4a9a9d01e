"""How one batch is handled: the order of work and saving, and what becomes of records that fail.

Everything runs on the career thread; only the user's code, and only with ``workers`` of more than
1, runs on threads of its own. The common case is one ``handle`` and one ``save`` for the whole
batch.

Words: a *part* is what is handed over in one call: the whole batch, the records of one partition,
what a pace lets through at a time, a single record. What precedes the culprit in its part is the
*prefix*, what follows is the *rest*.

**What is done is saved** at the end of the batch, and before: any wait (so that no transaction is
open meanwhile), any verdict on a record, and stopping. With *at most once* a part is saved before
it is handed over instead, and never again.

What happens on each failure:

* **handle raises** :class:`~leaderq.kafka.handling.on_error.PoisonRecord`: the culprit is known.
  The prefix is done and saved; the culprit is judged; the rest is handed over after that. Where
  effects are undone (``desk.undoes``) the attempt is undone as a whole, and the prefix is done
  again and saved first.
* **handle raises anything else**: the culprit is unknown. The same part is tried again as often as
  ``retry`` says, undone before if effects can be; then, unless the policy ends in ``"raise"``, one
  record at a time, each saved by itself, until one fails as often by itself: that is the culprit. A
  failure of a part costs a record none of its own attempts: an outage outlasts the attempts of a
  part, and would else bury a whole batch at one attempt each. Dead letters tell all attempts, those
  in larger parts too.
* **a value cannot be decoded**: as a named culprit, with nothing touched yet: the prefix is handled
  and saved, then it is judged.
* **the verdict is to raise**: what is known to be done is saved, then the user's own error is
  raised. Where effects are undone, nothing more is saved. Failures of other partitions not judged
  yet are logged.
* **skip, dead letter**: told (log, hook) and set aside, then the offset passes over the record. A
  crash in between tells and buries it again rather than losing it.
* **bury or save fails**: their error passes; nothing is saved past the record.
* **an error that is not about records** (deposed, Kafka or ZooKeeper away; ``BaseException``):
  passes as it is; what was not saved yet is repeated by the next leader.
* **the term ends or pauses**: noticed between parts and after a back-off. What is done is saved,
  the rest is not begun, and :meth:`Handling.work` gives ``False``. Attempts are counted anew when
  the rest is handed out again.
* **at most once**: the policy judges as above, with differences. A part whose culprit is unknown is
  given up as a whole (skipped, buried) rather than handled one by one, which would handle some of
  it twice. What fails is lost where the verdict is to raise. ``retry`` does repeat within the
  process: that is what it asks for. Nothing is undone. What was saved is handled even when the term
  is ending, as nobody else would, unless it is over.
* **the process dies**: if the career keeps marks, its next leader handles the partition's first
  records one by one, each marked before; one that has taken as many processes as the policy's
  ``deaths`` is passed over with :class:`~leaderq.kafka.handling.on_error.ProcessDied`. No workers
  run meanwhile: the blame must be on one record.

**Workers.** Each partition's records are one part, in order on one thread. When all threads are
done, what is done (whole partitions, and known prefixes) is saved once; failures are then judged on
the career thread, partition by partition in their order, as above. With ``desk.undoes`` a failure
undoes all: the batch is done again, one partition after the other. A term that ends meanwhile
begins no further partition, and waits for those begun.
"""

from __future__ import annotations

from collections.abc import Callable

from leaderq.kafka.handling.batch_work import BatchWork
from leaderq.kafka.handling.bench import Bench
from leaderq.kafka.handling.delivery import Delivery
from leaderq.kafka.handling.desk import Desk, Marks, Pace, Shape
from leaderq.kafka.handling.on_error import OnError
from leaderq.kafka.handling.workers import Workers
from leaderq.kafka.record import Batch, Record
from leaderq.term import Term

__all__ = ["Desk", "Handling", "Marks", "Pace", "Shape"]


class Handling:
    """Handles batches for one career, through all its terms. For the career thread.

    ``on_skipped(record, error, attempts)`` and ``on_buried(record, error, attempts, topic)`` are
    told, before it is saved, of each raw record that is passed over: perhaps twice, never not at
    all.

    *Guarantees:* the records of a partition are handed over in order, and none before those ahead
    of it were done, skipped or buried; an offset is saved only when all before it were. Except with
    *at most once*, which saves first.
    *Not guaranteed:* that ``handle`` is called once for a record where it raised, or where its end
    was not saved.
    """

    def __init__(
        self,
        desk: Desk,
        shape: Shape,
        on_error: OnError,
        delivery: Delivery,
        *,
        career: str,
        marks: Marks | None = None,
        pace: Pace | None = None,
        on_skipped: Callable[[Record, Exception, int], None] | None = None,
        on_buried: Callable[[Record, Exception, int, str], None] | None = None,
    ) -> None:
        # Marks serve to repeat records with care: without a limit of deaths, or where nothing is
        # repeated, they serve nothing.
        needed = on_error.deaths is not None and not delivery.saves_first
        self._workers = Workers(shape.workers, f"leaderq-{career}-worker") if shape.workers > 1 else None
        self._bench = Bench(
            desk=desk,
            is_by_partition=shape.is_by_partition,
            on_error=on_error,
            saves_first=delivery.saves_first,
            career=career,
            marks=marks if needed else None,
            pace=pace,
            workers=self._workers,
            on_skipped=on_skipped,
            on_buried=on_buried,
        )

    def work(self, batch: Batch, term: Term) -> bool:
        """Handle and save ``batch``; gives ``False`` if the term is ending or paused, and part of
        it was not begun.

        Raises the user's own error where the policy says so; what :meth:`Desk.save` and
        :meth:`Desk.bury` raise; and errors that are not about records.
        """
        return BatchWork(self._bench, batch, term).run()

    def close(self) -> None:
        """End the worker threads. May be called twice; a later :meth:`work` makes new ones."""
        if self._workers is not None:
            self._workers.close()
