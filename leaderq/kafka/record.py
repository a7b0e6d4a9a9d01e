"""What a handler is given: records, and the batch that is committed as a whole.

These types are ours, so that a handler runs unchanged behind another client, and can be tested with
records made by hand. What a client library has made is not copied but *seen as* a :class:`Record`,
through a subclass of it that knows where that library keeps each field.

A batch of several partitions is handed over as one sequence (:class:`Chained`), without a copy. Its
records may be made only while they are looked at (:mod:`leaderq.kafka.clients.confluent_record`).
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

_TOPIC_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
TOPIC_RULE = "up to 249 letters, digits, '.', '_' and '-'"
"""What the name of a topic is, in words."""
FIELDS = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")


def is_topic_name(name: object) -> bool:
    """Whether ``name`` can be the name of a topic."""
    return isinstance(name, str) and _TOPIC_NAME.fullmatch(name) is not None


class Partition(NamedTuple):
    """One partition of a topic; equal to any ``(topic, number)`` pair."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Offset(int):
    """An offset at which to read on. ``epoch`` is the epoch of the broker that led when the record
    before it was written (-1: not known). When reading begins there, the epoch shows whether the
    log was cut off (KIP-320).
    """

    epoch: int

    def __new__(cls, value: int, epoch: int | None = None) -> Offset:
        made = super().__new__(cls, value)
        made.epoch = -1 if epoch is None else epoch
        return made


def epoch_of(offset: int) -> int:
    return offset.epoch if isinstance(offset, Offset) else -1


_Fields = namedtuple("_Fields", (*FIELDS, "leader_epoch"))  # type: ignore[misc]


if TYPE_CHECKING:
    from typing_extensions import TypeVar as _WithDefault

    K = _WithDefault("K", default=Any)
    V = _WithDefault("V", default=Any)

    class _Typed(tuple[Any, ...], Generic[K, V]):
        pass
else:
    K, V, _Typed = TypeVar("K"), TypeVar("V"), tuple


class Record(_Typed[K, V]):
    """One record of a topic; immutable. ``Record[str, Order]`` says what key and value are.

    ``key`` and ``value`` are ``bytes`` (or ``None`` where the producer sent none) unless the career
    declares a deserialiser; ``timestamp_ms`` is milliseconds since the epoch, as the producer or
    the broker set it (-1: unknown); ``headers`` are pairs of name and bytes. Two records with equal
    fields are equal, whatever client read them. ``leader_epoch``, the epoch of the broker that led
    when the record was written, is not compared.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        topic: str
        partition: int
        offset: int
        timestamp_ms: int
        key: K
        value: V
        headers: Sequence[tuple[str, bytes]]
        leader_epoch: int | None
    else:
        topic, partition = _Fields.topic, _Fields.partition
        offset, timestamp_ms = _Fields.offset, _Fields.timestamp_ms
        key, value, headers = _Fields.key, _Fields.value, _Fields.headers
        leader_epoch = _Fields.leader_epoch

    def __new__(
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: K,
        value: V,
        headers: Sequence[tuple[str, bytes]] = (),
        leader_epoch: int | None = None,
    ) -> Record[K, V]:
        fields = topic, partition, offset, timestamp_ms, key, value, headers, leader_epoch
        return tuple.__new__(Record, fields)

    @property
    def topic_partition(self) -> Partition:
        return Partition(self.topic, self.partition)

    @property
    def place(self) -> str:
        """``topic-partition@offset``, as log lines and errors name it."""
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def size(self) -> int:
        """Bytes of key and value as they were read; a deserialised key or value counts 0."""
        return sum(len(part) for part in (self.key, self.value) if isinstance(part, bytes))

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}

    def replace(self, **changes: Any) -> Record[Any, Any]:
        return Record(**{**self.as_dict(), "leader_epoch": self.leader_epoch, **changes})

    # The client's own tuple, and its layout, are hidden: all below uses the seven fields.

    def __iter__(self) -> Any:
        return iter(self.as_dict().values())

    def __len__(self) -> int:
        return len(FIELDS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self.as_dict() == other.as_dict()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"

    def __reduce__(self) -> Any:
        return Record, tuple(self.as_dict().values())


def _by_fields(name: str) -> Callable[..., Any]:
    method = getattr(tuple, name)
    return lambda self, *words: method(
        tuple(self), *(tuple(each) if isinstance(each, Record) else each for each in words)
    )


_COMPARED = "__add__ __lt__ __le__ __gt__ __ge__"
for _name in f"__getitem__ __contains__ index count {_COMPARED}".split():
    setattr(Record, _name, _by_fields(_name))


T = TypeVar("T")


class ListLike(Sequence[T]):
    """A sequence that equals any sequence of equal elements, also a list, and is shown as one."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(other) != len(self):
            return False
        return all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        return repr(list(self))


def size_of(rows: Sequence[Record]) -> int:
    """Bytes of all keys and values of records as they were read. Costs 0.1 us a record, if ``rows``
    has no ``size`` that is known without creating them.
    """
    if (size := getattr(rows, "size", None)) is not None:
        return int(size)
    return sum([len(row.value or b"") + len(row.key or b"") for row in rows])


@dataclass(frozen=True, eq=False)
class Batch:
    """Records handed out together; of each partition there is at least one."""

    records: Mapping[Partition, Sequence[Record]]

    @cached_property
    def ends(self) -> Mapping[Partition, int]:
        """The offsets to commit once all of them are handled."""
        return {partition: after(rows[-1]) for partition, rows in self.records.items()}

    def merged(self) -> Sequence[Record]:
        parts = list(self.records.values())
        return parts[0] if len(parts) == 1 else Chained(parts)

    def __len__(self) -> int:
        return sum(map(len, self.records.values()))


def grouped(records: Iterable[Record]) -> Batch:
    """Return the records as a batch: those of each partition together, in the order given."""
    rows: dict[Partition, list[Record]] = {}
    for record in records:
        rows.setdefault(record.topic_partition, []).append(record)
    return Batch(rows)


def after(record: Record) -> Offset:
    return Offset(record.offset + 1, record.leader_epoch)


class Chained(ListLike[T]):
    """The elements of ``parts``, one part after the other; the parts must not change."""

    __slots__ = ("_length", "_parts")

    def __init__(self, parts: Sequence[Sequence[T]]) -> None:
        self._parts = parts
        self._length = sum(map(len, parts))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._parts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self)[index]
        left = index + self._length if index < 0 else index
        if left >= 0:
            for part in self._parts:
                if left < len(part):
                    return part[left]
                left -= len(part)
        raise IndexError(f"there is no element {index} of {self._length}")
