"""Unit tests of careers without servers: a term that a test holds, and a career that is driven over
a list of records.

.. code-block:: python

    from leaderq.testing import drive, records, term

    def test_a_bad_click_is_set_aside():
        driven = drive(Billing(), records("clicks", [b"7", b"?", b"9"]))
        assert [letter.offset for letter in driven.dead_letters] == [1]
        assert driven.reason is Reason.WITHDRAWN      # all records were handled

    def test_a_bill_is_not_written_twice():
        first = drive(Billing(), records("clicks", [b"7", b"9"]), failing_commit=1)
        drive(Billing(), first.left, term=term(number=2))     # what the next leader reads
        assert bills() == {7: 1, 9: 1}

Everything that needs no server is real: stages, batches, ``on_error``, deserialisers, workers, the
checks of what the class declares. Only time is not real: ``term.wait`` returns at once, and a term
is over when ``lasts_s`` seconds have been waited in all. ``tick(at)`` makes a tick, with which a
test calls the method of a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any, overload

from leaderq.async_term import AsyncTerm
from leaderq.base import clock
from leaderq.base.arguments import Problem, at_least, require, wanted
from leaderq.career import Career, ILeaderCareer, career_name, check_career
from leaderq.config import Settings
from leaderq.errors import KafkaError
from leaderq.events import EventBus, Stage
from leaderq.kafka.assembly import Assembly, handling_context
from leaderq.kafka.career import KafkaCareer
from leaderq.kafka.clients.consumer import TopicPattern
from leaderq.kafka.clients.producer import Message
from leaderq.kafka.dead_letters.format import DeadLetter, read_dead_letter
from leaderq.kafka.declaration import Declaration
from leaderq.kafka.handling.batch_handler import BatchHandler
from leaderq.kafka.record import Batch, Partition, Record, grouped
from leaderq.kafka.stores import open_store
from leaderq.kafka.stores.offset_store import StoreContext
from leaderq.running.stages import StageRunner
from leaderq.running.supervision import Budgets
from leaderq.schedules import AsyncTick, Tick
from leaderq.schedules.tick import recorded
from leaderq.term import OpenTerm, Reason, Term
from leaderq.zookeeper import Operation
from leaderq.zookeeper.writing.groups import validated

_LONG_S = 1e9


class FakeTerm(OpenTerm):
    """A term without a server, as :func:`term` returns it; any thread may use it.

    ``written`` has the operations of each ``write``; ``waited_s`` is the sum of all waits, in
    seconds.
    """

    def __init__(self, *, number: int, career: str, unclean: bool, lasts_s: float) -> None:
        require(at_least("lasts_s", lasts_s, 0, "seconds"))
        self.written: list[list[Operation]] = []
        self.waited_s = 0.0
        self._lasts_s = lasts_s
        super().__init__(
            number=number,
            id=f"term-{number}",
            career=career,
            candidate="test",
            deadline=clock.now_s() + _LONG_S,
            write=self._noted,
            unclean=unclean,
        )

    def _passing_s(self, seconds: float) -> float:
        """How long a wait really takes: 0, whether the term is on or not. The seconds count as
        waited.
        """
        self.waited_s += max(0.0, super()._passing_s(seconds))
        if self.waited_s >= self._lasts_s:
            self.wind_up(Reason.WITHDRAWN)
        return 0.0

    def depose(self, reason: Reason = Reason.SESSION) -> None:
        """Take the leadership away, now: ``check`` and ``write`` raise ``Deposed``."""
        self._end_as(reason, True, "a Reason that deposes, or use step_down")

    def step_down(self, reason: Reason = Reason.STEP_DOWN) -> None:
        """End the term as planned, as an operator would."""
        self._end_as(reason, False, "a Reason that does not depose, or use depose")

    def _end_as(self, reason: Any, deposes: bool, remedy: str) -> None:
        is_fit = isinstance(reason, Reason) and reason.deposes is deposes
        require(wanted("reason", reason, is_fit, remedy))
        self.wind_up(reason)

    def _noted(self, _term: Term, ops: Sequence[Operation]) -> list[Any]:
        self.written.append([*validated(ops)])
        return [None for _ in ops]


def term(
    number: int = 1, *, career: str = "career", unclean: bool = False, lasts_s: float = 3600.0
) -> FakeTerm:
    """A term that is on until a test ends it, or until ``lasts_s`` seconds have been waited in
    all.
    """
    return FakeTerm(number=number, career=career, unclean=unclean, lasts_s=lasts_s)


@overload
def tick(
    at: datetime,
    *,
    name: str = ...,
    missed: int = ...,
    attempt: int = ...,
    is_requested: bool = ...,
    term: FakeTerm | None = None,
) -> Tick: ...


@overload
def tick(
    at: datetime,
    *,
    name: str = ...,
    missed: int = ...,
    attempt: int = ...,
    is_requested: bool = ...,
    term: AsyncTerm,
) -> AsyncTick: ...


def tick(
    at: datetime,
    *,
    name: str = "tick",
    missed: int = 0,
    attempt: int = 1,
    is_requested: bool = False,
    term: FakeTerm | AsyncTerm | None = None,
) -> Tick:
    """A tick with which a test calls the method of a schedule; ``at`` is an aware time. What the
    tick writes is in ``written`` of the given ``term``. For an ``async def`` method give
    ``term=AsyncTerm(term())``: the tick is an :class:`~leaderq.schedules.AsyncTick`.

    :raises ConfigurationError: ``at`` is not an aware time.
    """
    given: Any = at
    is_aware = isinstance(given, datetime) and given.utcoffset() is not None
    require(wanted("at", at, is_aware, "a datetime with a tzinfo, such as timezone.utc"))
    held = term or FakeTerm(number=1, career="career", unclean=False, lasts_s=3600.0)
    results: list[list[Any]] = []

    def complete(ops: Sequence[Operation]) -> list[Any]:
        if results:
            raise recorded(name)
        results.append((held._term if isinstance(held, AsyncTerm) else held).write(ops))
        return results[0]

    told = missed, attempt, is_requested, complete
    if isinstance(held, AsyncTerm):
        return AsyncTick(name, at, held, *told)
    return Tick(name, at, held, *told)


def records(
    topic: str,
    values: Iterable[bytes | tuple[bytes | None, bytes | None]],
    *,
    partition: int = 0,
) -> list[Record]:
    """Records of one partition, with offsets from 0. Each value is the record's value, or a pair of
    key and value.

    :raises ConfigurationError: a value is neither.
    """
    pairs = [value if isinstance(value, tuple) else (None, value) for value in values]
    require(*(wanted("values", one, _is_pair(one), "bytes, or key and value") for one in pairs))
    return [
        Record(topic, partition, offset, 0, key, value) for offset, (key, value) in enumerate(pairs)
    ]


def _is_pair(pair: tuple[object, ...]) -> bool:
    return len(pair) == 2 and all(one is None or isinstance(one, bytes) for one in pair)


@dataclass
class Driven:
    """The result of :func:`drive`.

    ``handled`` has the records of each call of ``handle`` that returned. ``committed`` and ``left``
    are the given records, in two parts: the next leader reads only those in ``left``. ``produced``
    and ``written`` are the effects of ``produce`` and ``write_with_offsets`` that stand. ``reason``
    says why the term ended. ``error`` is the career's first error, if :func:`drive` did not raise
    it.
    """

    term: FakeTerm
    reason: Reason = Reason.WITHDRAWN
    error: BaseException | None = None
    handled: list[list[Record]] = field(default_factory=list)
    committed: list[Record] = field(default_factory=list)
    left: list[Record] = field(default_factory=list)
    skipped: list[Record] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    produced: list[Message] = field(default_factory=list)
    written: list[Operation] = field(default_factory=list)


def drive(
    career: ILeaderCareer,
    given: Iterable[Record] = (),
    *,
    term: FakeTerm | None = None,
    settings: Settings | None = None,
    options: Mapping[str, Any] | None = None,
    units: int = 10_000,
    deposed_at: int | None = None,
    failing_commit: int | None = None,
    may_fail: bool = False,
) -> Driven:
    """Let ``career`` live through one term on this thread: ``prepare``, ``inaugurate``, ``execute``
    until nothing is left of ``given`` (or ``units`` are done), ``handOver``, ``retire``.

    Faults: with ``deposed_at``, the leadership is lost when ``handle`` comes to the record at this
    place in ``given`` (from 0). With ``failing_commit``, the commit of this number (from 1) fails,
    after its batch was handled. With a fault, or with ``may_fail``, the career's error is in the
    result.

    :raises ConfigurationError: the class cannot be run as it is, it would never read a record of
        ``given``, or an argument cannot be used.
    :raises Exception: whatever ``prepare``, ``retire`` or, after its hand-over, a stage raises.
    """
    batch = [*given]
    require(*_unfit(career, batch, units, deposed_at, failing_commit))
    check_career(type(career))
    name = career_name(career)
    held = FakeTerm(number=1, career=name, unclean=False, lasts_s=3600.0) if term is None else term
    driven = Driven(held)
    if isinstance(career, Career):
        settings = settings or Settings()
        options = settings.options if options is None else options
        career._take(replace(settings, options=options))
        career.candidate_id, career.events = "test", EventBus()
    if isinstance(career, KafkaCareer):
        require(*_strange(career._declared(), batch))
        falls_at = None if deposed_at is None else batch[deposed_at]
        career._assembly = _assembly(career, batch, driven, failing_commit, falls_at)
    runner = StageRunner(
        career,
        held,
        budgets=_budgets(held, settings or Settings()),
        inaugurate_budget_s=_LONG_S,
        settle_s=0.0,
        is_heard_out=lambda: True,
        events=EventBus(),
        tell_stage=lambda _stage: None,
        step_down=lambda: None,
    )
    with _standing(career):
        vars(career)["execute"] = _limited(career.execute, units)
        try:
            failure = runner.serve()
        finally:
            for hidden in ("execute", "handle"):  # they hide those of the class
                vars(career).pop(hidden, None)
        held.close()
    driven.reason = held.reason or Reason.WITHDRAWN
    driven.error = failure and failure.__cause__
    may_fail = may_fail or deposed_at is not None or failing_commit is not None
    if driven.error is not None and not may_fail:
        raise driven.error
    return driven


def _unfit(
    career: object,
    given: Sequence[Record],
    units: int,
    deposed_at: int | None,
    failing_commit: int | None,
) -> Iterator[Problem]:
    yield wanted("career", career, not isinstance(career, type), "an instance of the class")
    yield at_least("units", units, 1)
    reads = issubclass(career if isinstance(career, type) else type(career), KafkaCareer)
    remedy = "what records(...) returned" if reads else "none to a career that reads no topics"
    for one in given:
        yield wanted("given", one, reads and isinstance(one, Record), remedy)
    at = deposed_at
    is_place = at is None or (type(at) is int and 0 <= at < len(given))
    yield wanted("deposed_at", at, is_place, "the place of a record in given, from 0")
    is_commit = failing_commit is None or (reads and type(failing_commit) is int)
    is_commit = is_commit and (failing_commit is None or failing_commit >= 1)
    remedy = "the number of a commit, from 1, of a career that reads topics"
    yield wanted("failing_commit", failing_commit, is_commit, remedy)


def _strange(declared: Declaration, given: Sequence[Record]) -> Iterator[str]:
    """Yield a sentence for each topic of ``given`` that the career does not read."""
    topics = declared.topics
    given_topics = {record.topic for record in given}
    read = topics.among(given_topics) if isinstance(topics, TopicPattern) else topics
    for topic in sorted(given_topics.difference(read)):
        yield f"{declared.where} does not read topic {topic!r}: give records of one of {topics}"


async def adrive(career: ILeaderCareer, given: Iterable[Record] = (), **how: Any) -> Driven:
    """As :func:`drive`, on another thread: for tests that are coroutines, so their event loop goes
    on.
    """
    from asyncio import to_thread

    return await to_thread(drive, career, given, **how)


def _budgets(held: OpenTerm, settings: Settings) -> Budgets:
    """Budgets as a runner makes them: at the end of the term, a coroutine that hangs is cancelled
    in time.
    """
    budgets = Budgets()
    budgets.open_term(held)
    held._call_at_end(lambda: budgets.allow(held, Stage.HANDOVER, settings.handover_budget_s))
    return budgets


@contextmanager
def _standing(career: ILeaderCareer) -> Iterator[None]:
    """Call ``prepare`` before the block, and ``retire`` after it."""
    if not isinstance(career, Career):
        yield
        return
    try:
        career._perform(career.prepare)
        yield
        career._perform(career.retire)
    finally:
        career._close()


def _limited(execute: Callable[[Any], Any], units: int) -> Callable[[Any], Any]:
    """A function that calls ``execute``, and ends the term after ``units`` calls."""
    left = iter(range(units - 1))

    def count(term: Any) -> None:
        held = getattr(term, "_term", term)
        if next(left, None) is None and isinstance(held, OpenTerm):
            held.wind_up(Reason.WITHDRAWN)

    async def awaited_unit(term: Any) -> Any:
        returned = await execute(term)
        count(term)
        return returned

    def unit(term: Any) -> Any:
        returned = execute(term)
        count(term)
        return returned

    return awaited_unit if iscoroutinefunction(execute) else unit


@dataclass
class _Consumer:
    """Replaces the consumer thread: hands out the records that are left, and keeps committed
    offsets.
    """

    is_fit = True
    declared: Declaration
    given: Sequence[Record]
    store: Any
    driven: Driven
    failing_commit: int | None
    loaded: dict[Partition, int] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    commits: int = 0
    term: Term | None = None

    def begin(self, term: Term, _wait_s: float) -> None:
        self.term = term
        if self.store.handle_stores:
            self.ends.update(self.store.load(None, term, 0.0))

    def is_consuming(self, term: Term) -> bool:
        return self.term is term

    def next(self, term: Term, _wait_s: float) -> Batch | None:
        max_records, max_bytes = self.declared.max_records, self.declared.max_bytes
        found: list[Record] = []
        size = 0
        for count, record in enumerate(filter(self._is_left, self.given)):
            size += record.size
            if count and (count == max_records or (max_bytes is not None and size > max_bytes)):
                break
            found.append(record)
        if not found and isinstance(term, OpenTerm):
            term.wind_up(Reason.WITHDRAWN)
        return grouped(found) if found else None

    def commit(self, term: Term, ends: Mapping[Partition, int]) -> None:
        term.check()
        self.commits += 1
        if self.commits == self.failing_commit:
            raise KafkaError("this commit fails, as the test wants")
        self.ends.update(ends)
        kept = self.driven.produced if self.store.offers == "produce" else self.driven.written
        kept.extend(self.store.take_effects())

    def finish(self, _term: Term) -> None:
        for record in self.given:
            (self.driven.left if self._is_left(record) else self.driven.committed).append(record)

    def _is_left(self, record: Record) -> bool:
        return record.offset >= self.ends.get(record.topic_partition, 0)

    def close(self) -> None:
        return


class _Letters:
    """Replaces the sender of dead letters."""

    def __init__(self, driven: Driven) -> None:
        self._driven = driven

    def send(self, term: Term, topic: str, letter: Message) -> None:
        term.check()
        found = Record(
            topic, 0, len(self._driven.dead_letters), 0, letter.key, letter.value, letter.headers
        )
        self._driven.dead_letters.append(read_dead_letter(found))

    def close(self) -> None:
        return


class _Watched(Sequence[Record]):
    """A batch that calls ``fall`` with each record that is looked at, so the leadership may be lost
    there.
    """

    def __init__(self, batch: Sequence[Record], fall: Callable[[Record], None]) -> None:
        self._batch, self._fall = batch, fall

    def __len__(self) -> int:
        return len(self._batch)

    def __getitem__(self, at: Any) -> Any:
        found = self._batch[at]
        for record in found if isinstance(at, slice) else [found]:
            self._fall(record)
        return found

    def __iter__(self) -> Iterator[Record]:
        for record in self._batch:
            self._fall(record)
            yield record


def _assembly(
    career: KafkaCareer,
    given: Sequence[Record],
    driven: Driven,
    failing_commit: int | None,
    falls_at: Record | None,
) -> Assembly:
    declared = career._declared()
    nowhere: Any = object()
    context = StoreContext(
        career=declared.name,
        root=career.settings.root,
        where=declared.where,
        session=nowhere,
        load_offsets=career._load_offsets,
        make_producer=nowhere,
    )
    store = declared.offsets
    open_store(store, context)
    consumer: Any = _Consumer(declared, given, store, driven, failing_commit)
    letters: Any = _Letters(driven)
    vars(career)["handle"] = _handling(career, falls_at, driven)
    calls = career._calls()
    calls.reads = declared.group, declared.topics
    handling = handling_context(
        declared,
        calls,
        store,
        coroutines=career._coroutines(declared, calls),
        commit=consumer.commit,
        send_dead_letter=letters.send,
        on_skipped=lambda record, _error, _attempts: driven.skipped.append(record),
    )
    return Assembly(declared, store, consumer, BatchHandler(handling), letters, calls)


def _handling(
    career: KafkaCareer, at: Record | None, driven: Driven
) -> Callable[[Sequence[Record], Any], Any]:
    """Return a function that calls the career's own ``handle``. The leadership is lost when
    ``handle`` looks at record ``at``; each call that returns is added to ``driven.handled``.
    """
    own = career.handle

    def fall(record: Record) -> None:
        if at is not None and record[:3] == at[:3]:
            driven.term.depose()

    def given(batch: Sequence[Record]) -> Sequence[Record]:
        return batch if at is None else _Watched(batch, fall)

    def note(batch: Sequence[Record]) -> None:
        for record in batch:
            fall(record)
        driven.handled.append([*batch])

    def handle(batch: Sequence[Record], term: Term) -> Any:
        returned = own(given(batch), term)
        note(batch)
        return returned

    async def handle_awaited(batch: Sequence[Record], term: Any) -> Any:
        returned = await own(given(batch), term)
        note(batch)
        return returned

    return handle_awaited if career._is_async else handle
