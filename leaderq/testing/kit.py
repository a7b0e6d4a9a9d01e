"""Unit tests of careers without servers: a term that a test holds, and a career driven over a list.

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

Everything of leaderq's that has no server to talk to is the real thing: the stages, the batches,
``on_error``, deserialisers, workers, the checks of what the class declares. Time is not: what
waits with ``term.wait`` returns at once, and a term is over when its ``lasts_s`` are waited up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leaderq.career import ILeaderCareer, LeaderCareer, career_name, check_career
from leaderq.clock import now_s
from leaderq.config import Settings
from leaderq.errors import KafkaError
from leaderq.events import EventBus
from leaderq.kafka import KafkaLeaderCareer
from leaderq.kafka.assembly import Assembly, handling_context
from leaderq.kafka.clients.producer import Message
from leaderq.kafka.dead_letters.format import DeadLetter, NewDeadLetter, read_dead_letter
from leaderq.kafka.declaration import Declaration, StoreKind
from leaderq.kafka.handling.batch_handler import BatchHandler
from leaderq.kafka.handling.parts import HandleCalls
from leaderq.kafka.record import Batch, Partition, Record, batch_of
from leaderq.kafka.stores.offset_store import ExternalOffsets, KafkaOffsets
from leaderq.kafka.stores.transaction_offsets import TransactionOffsets
from leaderq.kafka.stores.zookeeper_offsets import ZooKeeperOffsets
from leaderq.running.stages import StageRunner
from leaderq.running.supervision import Budgets
from leaderq.term import OpenTerm, Reason, Term
from leaderq.zookeeper import Operation

_LONG_S = 1e9


class FakeTerm(OpenTerm):
    """A term without a server, as :func:`term` returns it; any thread may use it.

    ``written`` has the operations of each ``write``, ``waited_s`` how long was waited in all.
    """

    def __init__(self, *, number: int, career: str, unclean: bool, lasts_s: float) -> None:
        self.written: list[list[Operation]] = []
        self.waited_s = 0.0
        self._lasts_s = lasts_s
        super().__init__(
            number=number,
            id=f"term-{number}",
            career=career,
            candidate="test",
            deadline=now_s() + _LONG_S,
            write=self._noted,
            unclean=unclean,
        )

    def wait(self, seconds: float) -> bool:
        """Return at once whether the term is on, as if so much time had passed."""
        self.waited_s += seconds
        if self.waited_s >= self._lasts_s:
            self.wind_up(Reason.WITHDRAWN)
        return super().wait(0)

    def depose(self, reason: Reason = Reason.SESSION) -> None:
        """Take the leadership away, now: ``check`` and ``write`` raise ``Deposed``."""
        if not reason.deposes:
            raise ValueError(f"{reason} ends a term as planned; use step_down")
        self.wind_up(reason)

    def step_down(self, reason: Reason = Reason.STEP_DOWN) -> None:
        """End the term as planned, as an operator would."""
        self.wind_up(reason)

    def _noted(self, _term: Term, ops: Sequence[Operation]) -> list[Any]:
        self.written.append([*ops])
        return [None for _ in ops]


def term(
    number: int = 1, *, career: str = "career", unclean: bool = False, lasts_s: float = 3600.0
) -> FakeTerm:
    """A term that is on until a test ends it, or ``lasts_s`` seconds are waited up."""
    return FakeTerm(number=number, career=career, unclean=unclean, lasts_s=lasts_s)


def records(
    topic: str,
    values: Iterable[bytes | tuple[bytes | None, bytes | None]],
    *,
    partition: int = 0,
    first_offset: int = 0,
) -> list[Record]:
    """Records of one partition with these values, or pairs of key and value."""
    pairs = [value if isinstance(value, tuple) else (None, value) for value in values]
    return [
        Record(topic, partition, first_offset + at, 0, key, value)
        for at, (key, value) in enumerate(pairs)
    ]


@dataclass
class Driven:
    """What came of :func:`drive`.

    ``handled`` has the records of each call of ``handle`` that returned, as the career saw them;
    ``committed`` and ``left`` split those given: what the next leader does not read, and what it
    does. ``produced`` and ``written`` are the effects that stand: of ``produce`` and of
    ``write_with_offsets``. ``reason`` is why the term ended, ``error`` what the career raised.
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
) -> Driven:
    """Let ``career`` live through one term on this thread: ``prepare``, ``inaugurate``, ``execute``
    until nothing is left of ``given`` (or ``units`` are done), ``handOver``, ``retire``.

    Faults: ``deposed_at``: the leadership is lost when ``handle`` comes to the record at this
    place of ``given`` (from 0). ``failing_commit``: this commit (from 1) fails, after its batch was
    handled. An error of the career is in the result; the next term is another call.

    :raises ConfigurationError: the class cannot be run as it is.
    :raises Exception: whatever ``prepare`` or ``retire`` raises.
    """
    check_career(type(career))
    name = career_name(career)
    held = FakeTerm(number=1, career=name, unclean=False, lasts_s=3600.0) if term is None else term
    driven = Driven(held)
    if isinstance(career, LeaderCareer):
        career.settings, career.events = settings or Settings(), EventBus()
        career.candidate_id, career.options = "test", dict(options or career.settings.options)
    if isinstance(career, KafkaLeaderCareer):
        source = _Source([*given], deposed_at, failing_commit)
        career._assembly = _assembly(career, source, driven)
    runner = StageRunner(
        _Limited(career, units),
        held,
        budgets=Budgets(),
        inaugurate_budget_s=_LONG_S,
        settle_s=0.0,
        events=EventBus(),
        tell_stage=lambda _stage: None,
        step_down=lambda: None,
    )
    if isinstance(career, LeaderCareer):
        career.prepare()
    failure = runner.serve()
    held.close()
    if isinstance(career, LeaderCareer):
        career.retire()
    driven.reason = held.reason or Reason.WITHDRAWN
    driven.error = failure and failure.__cause__
    return driven


class _Limited(LeaderCareer):
    """A career that ends its term after so many units."""

    def __init__(self, career: ILeaderCareer, units: int) -> None:
        self._career, self._left = career, units
        self.inaugurate = career.inaugurate  # type: ignore[method-assign]
        self.handOver = career.handOver  # type: ignore[method-assign]
        if isinstance(career, LeaderCareer):
            self._begin = career._begin  # type: ignore[method-assign]
            self._finish = career._finish  # type: ignore[method-assign]

    def execute(self, term: Term) -> None:
        returned: object = self._career.execute(term)
        self._left -= 1
        if not self._left and isinstance(term, OpenTerm):
            term.wind_up(Reason.WITHDRAWN)
        return returned  # type: ignore[return-value]


class _Source:
    """The records given, what of them is committed, and the faults."""

    def __init__(
        self, given: Sequence[Record], deposed_at: int | None, failing: int | None
    ) -> None:
        self.given = given
        self.deposed_at = None if deposed_at is None else given[deposed_at]
        self.failing = failing
        self.ends: dict[Partition, int] = {}

    def is_left(self, record: Record) -> bool:
        return record.offset >= self.ends.get(Partition(record.topic, record.partition), 0)

    def batch(self, max_records: int, max_bytes: int | None) -> Batch | None:
        found: dict[Partition, list[Record]] = {}
        size = count = 0
        for record in filter(self.is_left, self.given):
            if count and (
                count == max_records or size + record.size > (max_bytes or size + record.size)
            ):
                break
            found.setdefault(Partition(record.topic, record.partition), []).append(record)
            size, count = size + record.size, count + 1
        return batch_of(found) if found else None


class _Consumer:
    """In the place of the consumer thread: hands out what is left, and keeps what is committed."""

    is_fit = True

    def __init__(self, declared: Declaration, source: _Source, store: Any, driven: Driven) -> None:
        self.loaded: dict[Partition, int] = {}
        self._declared = declared
        self._source = source
        self._store = store
        self._driven = driven
        self._commits = 0
        self._term: Term | None = None

    def begin(self, term: Term, _wait_s: float) -> None:
        self._term = term
        if isinstance(self._store, ExternalOffsets):
            self._source.ends.update(self._store.load(None, term, 0.0))  # type: ignore[arg-type]

    def is_consuming(self, term: Term) -> bool:
        return self._term is term

    def next(self, term: Term, _wait_s: float) -> Batch | None:
        batch = self._source.batch(self._declared.max_records, self._declared.max_bytes)
        if batch is None and isinstance(term, OpenTerm):
            term.wind_up(Reason.WITHDRAWN)
        return batch

    def commit(self, term: Term, ends: Mapping[Partition, int]) -> None:
        term.check()
        self._commits += 1
        if self._commits == self._source.failing:
            raise KafkaError("this commit fails, as the test wants")
        self._source.ends.update(ends)
        if isinstance(self._store, _UntilCommit):
            at = (
                self._driven.produced
                if isinstance(self._store, _Transactions)
                else self._driven.written
            )
            at.extend(self._store.taken())

    def finish(self, _term: Term) -> None:
        for record in self._source.given:
            at = self._driven.left if self._source.is_left(record) else self._driven.committed
            at.append(record)

    def close(self) -> None:
        return


class _UntilCommit:
    """A store of effects that wait for their batch."""

    def __init__(self) -> None:
        self._waiting: list[Any] = []

    def taken(self) -> list[Any]:
        taken, self._waiting = self._waiting, []
        return taken

    def undo(self) -> None:
        self._waiting = []

    def close(self) -> None:
        return


class _Transactions(_UntilCommit, TransactionOffsets):
    def produce(self, message: Message, max_bytes: int | None = None) -> None:
        self._waiting.append(message)


class _Znodes(_UntilCommit, ZooKeeperOffsets):
    def add(self, operations: Iterable[Operation]) -> None:
        self._waiting += operations


class _Letters:
    """In the place of what sends dead letters."""

    def __init__(self, driven: Driven) -> None:
        self._driven = driven

    def send(self, term: Term, topic: str, letter: NewDeadLetter) -> None:
        term.check()
        found = Record(
            topic, 0, len(self._driven.dead_letters), 0, letter.key, letter.value, letter.headers
        )
        self._driven.dead_letters.append(read_dead_letter(found))

    def close(self) -> None:
        return


class _Watched(Sequence[Record]):
    """A batch during which the leadership is lost: when ``at`` is looked at, or left unlooked
    at.
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


def _assembly(career: KafkaLeaderCareer, source: _Source, driven: Driven) -> Assembly:
    declared = career._declared()
    stores: dict[StoreKind, Callable[[], Any]] = {
        StoreKind.TRANSACTION: _Transactions,
        StoreKind.ZOOKEEPER: _Znodes,
        StoreKind.EXTERNAL: lambda: ExternalOffsets(career.load_offsets, declared.where),
        StoreKind.KAFKA: KafkaOffsets,
    }
    store = stores[declared.offsets]()
    consumer: Any = _Consumer(declared, source, store, driven)
    letters: Any = _Letters(driven)
    calls = HandleCalls(_handling(career, source, driven))
    context = handling_context(
        declared,
        calls,
        store,
        commit=consumer.commit,
        send_dead_letter=letters.send,
        on_skipped=lambda record, _error, _attempts: driven.skipped.append(record),
    )
    return Assembly(declared, store, consumer, BatchHandler(context), letters, calls)


def _handling(
    career: KafkaLeaderCareer, source: _Source, driven: Driven
) -> Callable[[Sequence[Record], Term], None]:
    def fall(record: Record) -> None:
        at = source.deposed_at
        if at is not None and record[:3] == at[:3]:
            driven.term.depose()

    def handle(batch: Sequence[Record], term: Term) -> None:
        returned: object = career.handle(  # type: ignore[func-returns-value]
            batch if source.deposed_at is None else _Watched(batch, fall), term
        )
        for record in batch:
            fall(record)
        driven.handled.append([*batch])
        return returned  # type: ignore[return-value]

    return handle
