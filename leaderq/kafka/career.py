"""The career of a leader that drains Kafka."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from leaderq.base.arguments import require_finished
from leaderq.career import Career, LeaderCareer, career_name, career_problems
from leaderq.config import Settings
from leaderq.errors import ConfigurationError, Deposed, KafkaFenced, UnknownTopic
from leaderq.kafka.assembly import Assembly, Environment, assembled
from leaderq.kafka.clients.consumer import BatchLost
from leaderq.kafka.clients.producer import MAX_MESSAGE_BYTES, Message, checked
from leaderq.kafka.declaration import Declaration, check, declaration_of
from leaderq.kafka.handling.calls import CoroutineWorkers, HandleCalls
from leaderq.kafka.handling.on_error import OnError, PoisonRecord, is_about_records
from leaderq.kafka.record import Record
from leaderq.kafka.stores import STORES, chosen
from leaderq.kafka.stores.handle_call import require_handle_call
from leaderq.kafka.stores.offset_store import OffsetStore
from leaderq.observability import tracing
from leaderq.term import OpenTerm, Reason, Term
from leaderq.zookeeper import Operation

log = logging.getLogger(__name__)

IDLE_WAIT_S = 0.25
FENCE_WAIT_S = 5.0


class KafkaCareer(Career):
    """What :class:`KafkaLeaderCareer` and :class:`~leaderq.kafka.AsyncKafkaLeaderCareer` have in
    common: the attributes that a class declares, and how a batch is fetched, handled and committed.
    Its methods run on the career's thread.
    """

    topics: ClassVar[str | Sequence[str] | re.Pattern[str]] = ()
    group: ClassVar[str | None] = None
    offsets: ClassVar[Literal["kafka", "zookeeper", "transaction", "external"] | OffsetStore] = (
        "kafka"
    )
    delivery: ClassVar[Literal["at_most_once", "at_least_once", "exactly_once"] | None] = None
    auto_offset_reset: ClassVar[Literal["earliest", "latest", "none"] | None] = None
    begin_at: ClassVar[datetime | None] = None
    produces: ClassVar[str | Sequence[str]] = ()
    max_message_bytes: ClassVar[int] = MAX_MESSAGE_BYTES
    client: ClassVar[Literal["kafka-python", "confluent"]] = "kafka-python"
    client_options: ClassVar[Mapping[str, Any]] = {}

    max_records: ClassVar[int] = 1000
    max_bytes: ClassVar[int | None] = 32_000_000
    max_wait_s: ClassVar[float] = 0.0
    batches: ClassVar[Literal["merged", "partition"]] = "merged"
    workers: ClassVar[int] = 1
    concurrency: ClassVar[int] = 1
    order: ClassVar[Literal["partition", "key", "none"]] = "partition"
    commit_behind: ClassVar[bool] = False
    # Any, because type checkers would take a function for a method, without its first argument.
    key_deserializer: ClassVar[Any] = None
    value_deserializer: ClassVar[Any] = None
    key_serializer: ClassVar[Any] = None
    value_serializer: ClassVar[Any] = None
    max_records_per_s: ClassVar[float | None] = None
    max_bytes_per_s: ClassVar[float | None] = None
    key_interval_s: ClassVar[float | None] = None

    on_error: ClassVar[Literal["raise"] | OnError] = "raise"
    handle_budget_s: ClassVar[float | None] = None

    # Of the class, so that a subclass with an __init__ of its own need not call ours.
    _assembly: Assembly | None = None

    if TYPE_CHECKING:
        handle: Any
        handle_record: Any

    def load_offsets(self, term: Any) -> Any:
        """With ``offsets="external"``: make your store refuse earlier terms, then return, for each
        partition, the offset to read next.

        Keys are ``(topic, partition)``; a partition that was never read is absent. Called before
        :meth:`inaugurate`.
        """
        raise NotImplementedError

    # ---- what the user's code may call in handle -------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """With ``offsets="transaction"``: send a record that becomes visible together with the
        offsets of the batch, or never. ``value`` and ``key``: bytes or ``None``, or what
        ``value_serializer`` and ``key_serializer`` take; what they raise is raised here.

        Returns at once; a failure shows when the batch is committed. Accepted until :meth:`handle`
        returns, on its thread, in its asyncio tasks, and on threads that were given its context
        (``contextvars.copy_context().run``); anywhere else it raises
        :class:`~leaderq.errors.ConfigurationError`, because no batch is in hand.
        """
        assembly = self._assembly or self._running()
        store = _offering("produce", assembly)
        if (known := assembly.declared.produces) and topic not in known:
            where = type(self).__qualname__
            raise ConfigurationError(
                f"produce() in {where} names the topic {topic!r}, and 'produces' has"
                f" {', '.join(map(repr, known))}; correct the name, or add it there"
            )
        headers = tracing.sent_record(topic, tuple(headers or ()))
        message = Message(topic, value, key, headers, partition, timestamp_ms)
        sent = message if assembly.encode is None else assembly.encode(message)
        store.add((checked(sent, assembly.declared.max_message_bytes),))

    def write_with_offsets(self, *operations: Operation) -> None:
        """With ``offsets="zookeeper"``: add ``operations`` to the multi that commits the batch.
        Call it where :meth:`produce` may be called.
        """
        assembly = self._running()
        if assembly.declared.commits_first:
            where = type(self).__qualname__
            raise ConfigurationError(
                f"write_with_offsets() in {where} has delivery='at_most_once', where offsets are"
                " committed before handle is called; use term.write(...), or leave delivery out"
            )
        _offering("write_with_offsets", assembly).add(operations)

    def healthy(self) -> bool:
        """Return whether to go on leading: ``False`` while a call of :meth:`handle` has taken
        longer than ``handle_budget_s``.
        """
        if self._assembly is None or (budget_s := self._assembly.declared.handle_budget_s) is None:
            return True
        name, overdue = self._assembly.declared.name, self._assembly.calls.overdue(budget_s)
        for each in overdue:
            what = "handler over its budget career=%s handle_budget_s=%g running=%s"
            log.error(what, name, budget_s, each)
        return not overdue

    @property
    def _is_watched(self) -> bool:
        own = type(self).healthy is not KafkaCareer.healthy
        return own or self.handle_budget_s is not None or self.settings.handle_budget_s is not None

    # ---- what the runner calls -------------------------------------------------------------------

    def execute(self, term: Term) -> None:
        """Handle and commit one batch; returns after 0.25 s if none comes."""
        term.check()
        self._begin(term)
        assembly = self._running()
        batch = assembly.consumer.next(term, IDLE_WAIT_S)
        # The end may have been asked for meanwhile: the next leader is handed the batch.
        if batch is None or term.ending.is_set() or term.paused:
            return
        if (marks := assembly.handler.context.marks) is not None:
            marks.begin(term, assembly.consumer.loaded)
        try:
            assembly.handler.work(batch, term)
        except BatchLost:
            assembly.store.undo()  # records that are not committed are handed out again
        except UnknownTopic:
            # if the missing topic is another one, the next term finds that
            assembly.dead_letters.make_topic()
            raise
        except KafkaFenced as exc:
            if isinstance(term, OpenTerm):
                term.wind_up(Reason.FENCED)
            raise Deposed(term=term.number, reason=Reason.FENCED) from exc

    def _check_declared(self, settings: Settings) -> None:
        if is_ours(type(self).prepare):  # else that may declare the rest
            self._take(settings)
            try:
                self._declared()
            except ConfigurationError as exc:
                # such as a session, which a property may need
                if not isinstance(exc.__cause__, AttributeError):
                    raise

    def _begin(self, term: Term) -> None:
        """Fence the former leader, unless this term has begun to; waits up to 5 s. The runner calls
        it before ``inaugurate``, and ``execute`` calls it again.
        """
        if self._assembly is not None and self._assembly.consumer.is_consuming(term):
            return
        self._running().begin(term, FENCE_WAIT_S)

    def _finish(self, term: Term) -> None:
        """Stop reading and committing for ``term``. The runner calls it after ``handOver``, before
        it releases the leadership.
        """
        if self._assembly is not None:
            self._assembly.handler.context.on_held_up(None)
            self._assembly.consumer.finish(term)

    def _put_away(self) -> None:
        if self._assembly is not None:
            self._assembly.close()
            self._assembly = None

    def _running(self) -> Assembly:
        assembly = self._assembly
        if assembly is None or not assembly.consumer.is_fit:
            assembly = self._assembly = assembled(self._environment(), assembly)
        return assembly

    def _declared(self) -> Declaration:
        """The class's declaration, checked; raises :class:`~leaderq.errors.ConfigurationError`."""
        declared = declaration_of(self, self.settings.career or career_name(self), self.settings)
        check(declared, [*self._problems(declared), *career_problems(type(self))])
        return declared

    def _calls(self) -> HandleCalls:
        return HandleCalls(self.handle)

    def _coroutines(self, declared: Declaration, calls: HandleCalls) -> CoroutineWorkers | None:
        """Return the workers that handle records side by side on an event loop, or ``None``."""
        return None

    def _environment(self) -> Environment:
        declared, calls = self._declared(), self._calls()
        calls.reads = declared.group, declared.topics
        return Environment(
            declared=declared,
            settings=self.settings,
            session=self.session,
            events=self.events,
            candidate=self.candidate_id,
            calls=calls,
            coroutines=self._coroutines(declared, calls),
            load_offsets=self._load_offsets,
        )

    def _load_offsets(self, term: Term) -> Mapping[Any, int]:
        found: Mapping[Any, int] = self.load_offsets(term)
        return found

    def _problems(self, declared: Declaration) -> Iterable[str]:
        kind, where = type(self), declared.where
        if is_ours(kind.handle) and is_ours(kind.handle_record):
            yield (
                f"{where} has neither handle(records, term) nor handle_record(record, term); write"
                " one of them"
            )
        store = chosen(declared.offsets)
        needs = {} if store is None else store.needs
        for name, advice in needs.items():
            if store is not None and is_ours(getattr(kind, name)):
                yield f"{where} has offsets={store.word!r} and no {name}(term); write it ({advice})"


class KafkaLeaderCareer(KafkaCareer, LeaderCareer):
    """A leader that reads all partitions of some topics, in order within each: subclass it, set
    ``topics``, write :meth:`handle`.

    What to read, and where progress is kept (class attributes):
        ``topics``: a topic or several, or a pattern (``re.compile("clicks-.*")``): all topics whose
        whole name matches, also those made while it leads (read within some 15 s), except Kafka's
        own and the career's dead letters. ``group``: the consumer group; default the career's name.
        ``offsets``: where progress is kept, which also decides what is fenced: ``"kafka"`` (the
        group's committed offsets), ``"zookeeper"`` (with the znodes that :meth:`handle` writes),
        ``"transaction"`` (with the records it produces), ``"external"`` (in the user's own
        database), or an :class:`~leaderq.kafka.OffsetStore` of your own. ``delivery``:
        ``"at_most_once"``, ``"at_least_once"`` or ``"exactly_once"``;
        default: the most that the store can do. See :mod:`leaderq.kafka.declaration` for the order
        of work and committing, and what each costs. ``auto_offset_reset``: where a group that never
        committed begins: ``"earliest"``, ``"latest"`` or ``"none"`` (an error). If it is set,
        reading also continues there when the next records are *gone* (deleted by retention; a topic
        made again). Not set (``None``): a new group begins at the earliest record, and the leader
        stops with an error when records are gone: nothing is skipped silently. ``begin_at``: a
        ``datetime`` (without a zone: local time); a group that never committed begins at the first
        record of each partition that is not older.
        ``max_message_bytes``: the largest message (key, value and headers) that :meth:`produce`
        takes; a larger one is an error of its record. Raise it if topics take more. A dead letter
        may have as many bytes, or 64 MB if that is more. ``client``: ``"kafka-python"``, or
        ``"confluent"``, which reads several times as fast (extra ``leaderq[confluent]``).
        ``client_options``: the library's own options, under its names: rack, fetch sizes,
        compression, who issues tokens. Options that a promise rests on are refused
        (:mod:`leaderq.kafka.clients.client_options`). ``produces`` (optional): the topics that it
        writes to. :meth:`produce` then takes no others, and if one does not exist, ``leaderq run``
        ends at once and ``leaderq doctor`` says so.

    How it is handed over:
        ``max_records``, ``max_bytes`` (keys and values), ``max_wait_s``: a batch is handed over
        when one of the first two is reached, or ``max_wait_s`` after its first record was read. One
        batch is in hand and one ahead, so memory is bounded by a few times ``max_bytes``. After a
        crash the next leader may repeat one batch. Each commit is one round trip, so small batches
        are slower. ``batches``: ``"merged"`` (one call for a batch) or ``"partition"`` (one call
        for the records of each partition). ``workers``: how many partitions to handle in parallel,
        each in order; then :meth:`handle` is called on several threads, and a batch has equal
        shares of all partitions with records. ``order``: ``"partition"``,
        ``"key"`` or ``"none"``; the last two with ``"kafka"``, ``"zookeeper"``, ``"transaction"``:
        then ``workers`` is how many records to handle in parallel, those of each key in order, each
        in a call of its own; one that fails stops its own key only, and repeats no other. New
        records are taken in as others are done, up to ``max_records`` in hand, while one call of
        ``execute`` lasts (some 5 s).
        ``commit_behind`` (with ``offsets = "kafka"``): hand out the next batch while the commit of
        the one before is under way; then a crash may repeat two batches instead of one.
        ``key_deserializer``, ``value_deserializer``: make of ``bytes`` what
        :meth:`handle` sees; ``key_serializer``, ``value_serializer``: make bytes of what is given
        to :meth:`produce`. Each is ``"json"``, a function, or a class of confluent-kafka's schema
        registry; default: bytes. ``None`` (no key, a tombstone) stays ``None``.
        ``max_records_per_s``, ``max_bytes_per_s``: limits; ``key_interval_s``: the shortest time
        between two records of one key.

    What if it fails:
        ``on_error``: ``"raise"`` (default: the term fails, the offset stays), ``skip()``,
        ``retry(n, backoff_s, then=...)``, ``dead_letter(topic)``; see
        :mod:`leaderq.kafka.handling.on_error`. The same holds for records that cannot be decoded,
        and with the last two also for a record over which the process dies again and again.

        ``handle_budget_s``: one call of :meth:`handle`, with the deserialisers of its records, that
        takes longer ends the term, because it hangs. ``None`` (default): no limit. If you override
        :meth:`healthy`, call ``super().healthy()`` too.

    Order at the start of a term: the former leader is fenced, offsets are loaded,
    :meth:`inaugurate`, first :meth:`handle`. At its end: the batch in hand is finished and
    committed, :meth:`handOver`, the consumer is closed without leaving the group.

    *Guarantees:* a batch is committed only after :meth:`handle` returned for it (unless *at most
    once*), and only by the newest leader; at the change of a term at most one batch (two with
    ``commit_behind``) is repeated, and none skipped. While Kafka is unreachable the term continues
    and retries. A slow :meth:`handle` does not lose the membership. *Not guaranteed:* that the
    former leader is fenced *before* :meth:`inaugurate` if Kafka takes longer than 5 s to do it; but
    no record is read before it is. Exactly once holds for effects through the store; any other
    effect of a batch can be repeated.
    """

    _called = (*LeaderCareer._called, "handle", "handle_record", "load_offsets")
    _async_twin = "AsyncKafkaLeaderCareer"

    def handle(self, records: Sequence[Record], term: Term) -> None:
        """Work on one batch; the records of each partition are in order. Return when the work is
        done, raise if it cannot be done.

        Override this or :meth:`handle_record`, which it calls for each record. An override that
        knows which record it cannot handle raises ``PoisonRecord(record)``.
        """
        for record in records:
            try:
                returned: object = self.handle_record(record, term)  # type: ignore[func-returns-value]
                if returned is not None:
                    require_finished(returned, "handle_record")
            except PoisonRecord:
                raise
            except BaseException as exc:
                if not is_about_records(exc):
                    raise
                raise PoisonRecord(record) from exc

    def handle_record(self, record: Record, term: Term) -> None:
        """Work on one record. :meth:`handle`, unless you override it, calls this for each one."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Connect to Kafka, and keep the connections warm until this process leads; raises
        ``ConfigurationError``, ``UnknownTopic``, ``AccessRefused`` or ``ServersUnreachable``.
        """
        self._running()

    def retire(self) -> None:
        self._put_away()

    def _problems(self, declared: Declaration) -> Iterable[str]:
        yield from super()._problems(declared)
        if declared.concurrency != 1:
            yield (
                f"concurrency={declared.concurrency!r} of {declared.where} is for coroutines;"
                " derive it from leaderq.AsyncKafkaLeaderCareer, or use workers"
            )


def is_ours(method: Any) -> bool:
    """Whether ``method`` is leaderq's own, not one that the author of a career has written."""
    return str(getattr(method, "__module__", "")).startswith("leaderq.kafka.")


def _offering(method: str, assembly: Assembly) -> OffsetStore:
    """Return the store, which takes the effects of ``method``. Raises ConfigurationError if it
    takes those of another method, or outside a call of ``handle``.
    """
    store = assembly.store
    if store.offers != method:
        word = next(word for word, kind in STORES.items() if kind.offers == method)
        what = f"{method}() belongs to offsets={word!r}; this career has offsets={store.word!r}"
        raise ConfigurationError(what)
    require_handle_call(f"{method}()")
    return store
