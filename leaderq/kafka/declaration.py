"""What a career class declares, as one value, and checked as a whole: every problem is reported at
once, naming the value, the class and the remedy. Pure.

``delivery`` is how often a record may be handled. It must fit where the career's offsets are kept.
It names the least that is needed; a store that does more is accepted:

* ``"kafka"``: handle, then commit (*at least once*, the default): a crash in between repeats the
  records in hand. Or commit, then handle (*at most once*): after a crash in between they are never
  handled. *Exactly once* is refused, because committing and work are two steps.
* ``"zookeeper"``: handle, then commit together with the operations that ``handle`` added: for
  these exactly once, any other effect happens again after a crash. *At most once* as above.
* ``"transaction"``: handle and produce, then commit offsets and what was produced in one
  transaction: exactly once for readers with ``read_committed``.
* ``"external"``: ``handle`` stores result and offset in one transaction of its own. For the last
  two *at most once* is refused, because nothing can be committed first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from functools import partial
from inspect import getattr_static, iscoroutinefunction, signature
from itertools import chain
from types import FunctionType
from typing import Any, TypeVar

from leaderq.base.arguments import plain_function, require
from leaderq.config import Settings
from leaderq.config.settings import TABLE, Section
from leaderq.errors import ConfigurationError, told
from leaderq.kafka.clients.client_options import ClientLibrary, option_problems
from leaderq.kafka.clients.consumer import TopicPattern
from leaderq.kafka.handling.context import BatchShape, RecordOrder
from leaderq.kafka.handling.on_error import policy
from leaderq.kafka.record import TOPIC_RULE, is_topic_name
from leaderq.kafka.serialization import Deserializer, Serializer
from leaderq.kafka.stores import STORES, chosen
from leaderq.kafka.stores.database_offsets import DatabaseOffsets
from leaderq.kafka.stores.offset_store import DeliveryPromise, OffsetStore

_MEMBER_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TUNABLE = tuple(row.name for row in TABLE if row.section is Section.DRAIN)
_NEEDED = ("max_records", "max_wait_s", "workers", "max_message_bytes")
_WRITING = ("key_serializer", "value_serializer")
_MOST_AT_A_TIME = 10_000
_SERIALIZERS = ("key_deserializer", "value_deserializer", *_WRITING)


@dataclass(frozen=True)
class Declaration:
    """What the career ``name`` declares: the attributes of its class (``where``), and in their
    place the settings that override them.
    """

    where: str
    name: str
    topics: tuple[str, ...] | TopicPattern
    group: str
    offsets: OffsetStore
    delivery: DeliveryPromise | None
    auto_offset_reset: str | None
    begin_at: datetime | None
    client: ClientLibrary
    client_options: Mapping[str, Any]
    produces: tuple[str, ...]
    max_message_bytes: int
    max_records: int
    max_bytes: int | None
    max_wait_s: float
    batches: BatchShape
    workers: int
    concurrency: int
    order: RecordOrder
    commit_behind: bool
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    max_records_per_s: float | None
    max_bytes_per_s: float | None
    key_interval_s: float | None
    on_error: Any
    handle_budget_s: float | None
    atomic: bool

    @property
    def may_be_side_by_side(self) -> bool:
        """Whether several records may be handled at a time: they are committed after they are
        handled, and their effects through the store wait for that.
        """
        waits = not getattr(self.offsets, "handle_stores", False)
        return waits and self.delivery is not DeliveryPromise.AT_MOST_ONCE

    @property
    def commits_first(self) -> bool:
        return delivery_of(self.delivery, self.offsets, self.where) is DeliveryPromise.AT_MOST_ONCE


_CHOICES: Mapping[str, type[Enum]] = {
    "delivery": DeliveryPromise,
    "client": ClientLibrary,
    "batches": BatchShape,
    "order": RecordOrder,
}


def declaration_of(career: Any, name: str, settings: Settings) -> Declaration:
    """Return what the class of ``career`` declares, overridden by ``settings``; not checked yet."""
    given = "where", *_SERIALIZERS
    names = [each.name for each in fields(Declaration) if each.name not in given]
    found = {each: _read(career, each) for each in names}
    found |= {each: value for each in _TUNABLE if (value := getattr(settings, each)) is not None}
    found |= {each: serializer_of(career, each) for each in _SERIALIZERS}
    found |= {each: _member(kind, found[each]) or found[each] for each, kind in _CHOICES.items()}
    found["offsets"] = chosen(found["offsets"]) or found["offsets"]
    found |= {"where": type(career).__qualname__, "name": name, "group": found["group"] or name}
    if settings.kafka_rack is not None and isinstance(found["client_options"], Mapping):
        rack = "client.rack" if found["client"] is ClientLibrary.CONFLUENT else "client_rack"
        found["client_options"] = {**found["client_options"], rack: settings.kafka_rack}
    found["produces"] = _names(found["produces"])
    topics = found["topics"]
    if isinstance(topics, re.Pattern) and isinstance(topics.pattern, str):
        found["topics"] = TopicPattern(topics, without=dead_letters_of(found["on_error"], name))
    else:
        found["topics"] = _names(topics)
    return Declaration(**found)


def _read(career: object, name: str) -> Any:
    try:
        return getattr(career, name)
    except Exception as exc:  # of a property of the user's
        where = type(career).__qualname__
        raise ConfigurationError(f"{name} of {where} cannot be read: {told(exc)}") from exc


def _names(declared: Any) -> Any:
    """The names of topics that a class declares, one or several; what is neither is refused when it
    is checked. So is an iterator, which would be used up by then.
    """
    several = isinstance(declared, Iterable) and not isinstance(declared, str | bytes | Iterator)
    return tuple(declared) if several else (declared,)


def dead_letters_of(on_error: object, name: str) -> str | None:
    try:
        return policy(on_error, name).letters_topic(name)
    except ConfigurationError:  # reported when it is checked
        return None


Member = TypeVar("Member", bound=Enum)


def _member(kind: type[Member], value: object) -> Member | None:
    try:
        return kind(value)
    except ValueError:
        return None


def serializer_of(career: object, name: str) -> Any:
    """Return the serialiser that the class declares. A plain function is not bound to the object,
    unless its first argument is called ``self``.
    """
    declared = vars(career).get(name, getattr_static(type(career), name))
    if isinstance(declared, staticmethod | classmethod):
        return declared.__get__(career, type(career))
    if isinstance(declared, FunctionType) and [*signature(declared).parameters][:1] == ["self"]:
        return partial(declared, career)
    return declared


def check(declared: Declaration, others: Iterable[str] = ()) -> None:
    """Raise a ConfigurationError with all problems and ``others``, if there are any."""
    kinds = _problems_of_reading, _problems_of_values, _problems_of_order, _problems_of_producing
    require(*chain.from_iterable(find(declared) for find in kinds), *others)


def _wrong_names(attribute: str, names: Iterable[object], where: str) -> Iterator[str]:
    for name in names:
        if name != "" and not is_topic_name(name):
            what = f"{attribute!r} of {where} names {name!r:.100}, which cannot be a topic"
            yield f"{what}; use {TOPIC_RULE}"


# Each is given a Declaration as Any: it was filled by a user, whose types nobody has checked.


def _problems_of_reading(declared: Any) -> Iterator[str]:
    where, topics = declared.where, declared.topics
    if not isinstance(topics, TopicPattern):
        if not topics or "" in topics:
            yield f"'topics' of {where} is empty; name the topics to read"
        yield from _wrong_names("topics", topics, where)
        if (letters := dead_letters_of(declared.on_error, declared.name)) in topics:
            yield (
                f"'topics' of {where} has {letters!r}, where its own dead letters go; read them"
                " with another career"
            )
    if not _MEMBER_NAME.fullmatch(declared.name):
        what = f"the career name {declared.name!r} cannot be a Kafka member name"
        yield f"{what}; use {TOPIC_RULE}"
    options = declared.client_options
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        yield f"client_options of {where} is not a mapping of names to values"
    elif isinstance(declared.client, ClientLibrary):
        yield from option_problems(declared.client, options, f"client_options of {where}")
    begin = declared.begin_at
    if begin is not None and not isinstance(begin, datetime):
        yield f"begin_at={begin!r} of {where} is not a datetime.datetime; give one, or leave it out"
    elif begin is not None and not _has_timestamp(begin):
        yield f"begin_at={begin!r} of {where} is out of range; leave it out for the first record"


def _has_timestamp(time: datetime) -> bool:
    try:
        time.timestamp()
    except (ValueError, OverflowError):
        return False
    return True


def _problems_of_values(declared: Any) -> Iterator[str]:
    where = declared.where
    for name, kind in _CHOICES.items():
        value = getattr(declared, name)
        if name != "delivery" and not isinstance(value, kind):  # for that one see delivery_of
            yield _unknown(name, value, where, kind)
    for row in TABLE:
        if row.section is not Section.DRAIN or row.name == "client":
            continue
        value, is_needed = getattr(declared, row.name), row.name in _NEEDED
        if (value is not None or is_needed) and (problem := row.problem(value)):
            remedy = "" if is_needed else ", or leave it out (None)"
            yield f"{row.name}={value!r} of {where} {problem}{remedy}"
    count = declared.concurrency
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_AT_A_TIME:
        yield f"concurrency={count!r} of {where} is not a number from 1 to {_MOST_AT_A_TIME}"
    refused = _refused(lambda: delivery_of(declared.delivery, declared.offsets, where))
    yield from (*refused, *_refused(lambda: policy(declared.on_error, where)))


def _refused(find: Callable[[], object]) -> Sequence[str]:
    try:
        find()
    except ConfigurationError as exc:
        return exc.problems
    return ()


def _problems_of_order(declared: Any) -> Iterator[str]:
    where, order, workers = declared.where, declared.order, declared.workers
    is_apart = isinstance(order, RecordOrder) and order is not RecordOrder.PARTITION
    if is_apart and not declared.may_be_side_by_side:
        yield (
            f"order={order.value!r} of {where} contradicts its offsets or delivery: records behind"
            " one that is not done are handled before it, and what handle stores by itself, or what"
            " is committed before, cannot wait; use offsets='kafka', 'zookeeper' or 'transaction'"
            " without delivery, or leave order out"
        )
    behind, is_first = declared.commit_behind, declared.delivery is DeliveryPromise.AT_MOST_ONCE
    if not isinstance(behind, bool):
        yield f"commit_behind={behind!r} of {where} is not True or False"
    elif behind and (getattr(declared.offsets, "word", "") != "kafka" or is_first):
        yield (
            f"commit_behind of {where} contradicts its offsets or delivery: what is committed with"
            " results, or before them, cannot wait; use offsets='kafka' without delivery, or leave"
            " commit_behind out"
        )
    if declared.atomic and isinstance(workers, int) and workers > 1:
        yield (
            f"{where} is atomic and has workers={workers}; a unit on several threads cannot be"
            " abandoned: choose one"
        )


def _problems_of_producing(declared: Any) -> Iterator[str]:
    where = declared.where
    if "" in declared.produces:
        yield f"'produces' of {where} is {declared.produces!r}; name the topics that it writes to"
    yield from _wrong_names("produces", declared.produces, where)
    produces = getattr(declared.offsets, "offers", "produce") == "produce"  # or it is no store
    for name in _SERIALIZERS:
        given = getattr(declared, name)
        problem = plain_function(f"{name} of {where}", given, or_none=True)
        if problem and given != "json":
            yield f"{problem}, or 'json'"
        if name in _WRITING and given is not None and not produces:
            yield (
                f"{name} of {where} is for produce(), which belongs to offsets='transaction'; leave"
                f" {name} out, or serialise in handle"
            )


def delivery_of(delivery: object, store: object, where: str) -> DeliveryPromise:
    """Return how often the class ``where`` may handle a record; without a ``delivery``, its store's
    default. Raises ConfigurationError if one of both is unknown, or they contradict each other.
    """
    kept, wanted = chosen(store), _member(DeliveryPromise, delivery)
    problems = _problems_of_store(kept, where) if kept else [_unknown_store(store, where)]
    if delivery is not None and wanted is None:
        unknown = _unknown("delivery", delivery, where, DeliveryPromise)
        problems.append(f"{unknown}, or leave it out")
    if kept is None or problems:
        raise ConfigurationError(*problems)
    found = wanted or kept.promises[0]
    if found not in kept.promises:
        can = _listed(f"delivery={each.value!r}" for each in kept.promises)
        words = _listed(repr(word) for word, each in STORES.items() if found in each.promises)
        raise ConfigurationError(
            f"delivery={found.value!r} of {where} contradicts its offsets: offsets={kept.word!r}"
            f" can do {can}; use offsets={words}, or leave delivery out"
        )
    return found


def _problems_of_store(store: Any, where: str) -> list[str]:
    """What is wrong with what a store of the user's says of itself."""
    kind, problems = f"{type(store).__name__}, offsets of {where},", []
    word, promises = getattr(store, "word", None), store.promises
    if not (isinstance(word, str) and word):
        problems.append(f"{kind} has word={word!r}; name the store")
    is_list = isinstance(promises, Sequence) and not isinstance(promises, str)
    if not (is_list and promises and all(isinstance(one, DeliveryPromise) for one in promises)):
        problems.append(
            f"{kind} has promises={promises!r}; list what it can do, such as"
            " (DeliveryPromise.AT_LEAST_ONCE,)"
        )
    if store.offers and type(store).add is OffsetStore.add:
        problems.append(
            f"{kind} offers {store.offers}() and has no add(effects), so they would be dropped;"
            " write it"
        )
    # A coroutine is true: a fence that nobody has awaited would count as one that holds.
    asked = [name for name in dir(OffsetStore) if iscoroutinefunction(getattr(store, name, None))]
    if asked:
        problems.append(f"{kind} has coroutines ({', '.join(asked)}); write plain methods")
    return problems


def _unknown_store(store: object, where: str) -> str:
    if isinstance(store, type) and issubclass(store, OffsetStore):
        return f"offsets of {where} is the class {store.__name__}; make one: {store.__name__}(...)"
    if isinstance(store, DatabaseOffsets):
        return (
            f"offsets of {where} is a DatabaseOffsets, which the career's own methods use; write"
            " offsets='external', and load_offsets(term) that returns its load(term)"
        )
    words = ", ".join(map(repr, STORES))
    return f"offsets={store!r} of {where} is not known; use {words}, or an OffsetStore of your own"


def _unknown(attribute: str, value: object, where: str, kind: type[Enum]) -> str:
    names = _listed(repr(each.value) for each in kind)
    return f"{attribute}={value!r} of {where} is not known; use {names}"


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
