"""Where a career's progress is kept: one small interface, which each store implements in a file of
its own, together with all that is said of it.

Whatever the store, the order on taking over is **fence, then load, then read**: else an offset
could be loaded that a zombie moves a moment later. A store lives as long as its career's object,
through many terms; :meth:`OffsetStore.fence` begins each. It is called by the consumer thread,
except for :meth:`OffsetStore.begin` and what it offers to the user's code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

from leaderq.base.arguments import require
from leaderq.errors import ConfigurationError, KafkaError, LeaderqError, told
from leaderq.kafka.clients.consumer import CommitFuture, ConsumerClient, KafkaAway, Offsets
from leaderq.kafka.clients.producer import ProducerClient
from leaderq.kafka.groups import OffsetAdmin
from leaderq.kafka.record import Offset, Partition, epoch_of
from leaderq.kafka.stores.handle_call import take_effect
from leaderq.term import Term
from leaderq.threads.listeners import is_from_outside
from leaderq.zookeeper import Session

LoadOffsets = Callable[[Term], Mapping[Any, int]]
"""From a term to where to read on, by ``Partition`` or ``(topic, number)``; absent: never read."""


class DeliveryPromise(str, Enum):
    """How often a record may be handled."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


@dataclass(frozen=True)
class StoreContext:
    """The career for which a store keeps offsets: its name, its ``root`` in ZooKeeper, its class
    (``where``), and what leaderq's own stores need beside that.
    """

    career: str
    root: str
    where: str = "this career"
    folder: str = ""
    session: Session | None = None
    load_offsets: LoadOffsets | None = None
    make_producer: Callable[[], ProducerClient] | None = None


class StoreAway(KafkaAway):
    """The server that keeps the offsets, which is not Kafka, does not answer for now."""


class OffsetStore(ABC):
    """Keeps, for each partition, the offset at which the next reader begins. Subclass it to keep
    offsets where your results are: ``offsets = MyOffsets(...)`` in the career. It must pass
    ``leaderq.testing.offset_store_contract``.

    What is said of a store (class attributes):
        ``word``: its name, in ``offsets`` of a career and in messages. ``promises``: how often a
        record may be handled, the default first. ``needs``: methods that a career must write, each
        with advice. ``remedy``: how an operator restores offsets that are gone; ``None``: where the
        store has no offset, nothing was ever read.

    What is done with it:
        ``in_group``: the consumer must be a member of the group (else it only takes the
        partitions). A member that only reads is not told that a newer one has fenced it, so it
        commits its positions again from time to time. ``undoes``: a call of ``handle`` that
        failed has no effect through the store, so all of it is done again. Effects that wait for
        their offsets go through ``take_effect``, which keeps those of each call apart.
        ``handle_stores``: when ``handle`` returns, it has stored offsets and effects itself, so
        records are handled in the order of the log. ``offers``: the method of careers whose effects
        :meth:`add` takes, ``"produce"`` or ``"write_with_offsets"``; with ``"produce"`` dead
        letters are added too.

    Errors: those of :mod:`leaderq.kafka.clients.consumer`, :class:`StoreAway` (try again);
    ``KafkaFenced`` or ``Deposed`` where a newer leader exists. Any other ends the term.
    """

    word: ClassVar[str]
    promises: ClassVar[Sequence[DeliveryPromise]] = (DeliveryPromise.AT_LEAST_ONCE,)
    needs: ClassVar[Mapping[str, str]] = MappingProxyType({})
    remedy: ClassVar[str | None] = None
    in_group: ClassVar[bool] = False
    undoes: ClassVar[bool] = False
    handle_stores: ClassVar[bool] = False
    offers: ClassVar[str] = ""
    used_by: str | None = None  # the career that has it open

    def attach(self, context: StoreContext) -> None:  # noqa: B027 - nothing, where nothing is needed
        """Tell the store whose offsets it keeps. Called when a process prepares the career, and
        again when the career's parts are made again.
        """

    def check(self, context: StoreContext) -> str:
        """Check the store for ``leaderq doctor``: return what was found to be right, in a few words
        (``""``: nothing was checked). Raises a LeaderqError with the remedy if the store cannot be
        used.
        """
        return ""

    def begin(self, term: Term) -> None:  # noqa: B027 - nothing, where nothing is needed
        """Called on the career thread at the beginning of a term, before everything else."""

    # ---- for the user's code, in ``handle`` ------------------------------------------------------

    def add(self, effects: Iterable[Any]) -> None:  # noqa: B027 - nothing, where none is offered
        """Add ``effects`` to those of the batch in hand. The career's method named by ``offers``
        calls this, on any thread.
        """

    def take_effects(self) -> list[Any]:
        """Return the effects of the batch in hand, and forget them. Called when they are stored, or
        by a unit test that plays that.
        """
        return []

    # ---- for ``leaderq offsets`` -----------------------------------------------------------------

    def look_up(self, admin: OffsetAdmin) -> dict[Partition, int]:
        """Return the offsets of the career; for a command, which has no term."""
        return self._with_group(admin).stored()

    def require_settable(self, admin: OffsetAdmin) -> None:
        """Raise what :meth:`put` would raise now."""
        self._with_group(admin).require_settable()

    def put(self, admin: OffsetAdmin, offsets: Offsets) -> None:
        """Set these offsets for whoever leads next.

        :raises RequestRefused: somebody leads, and the store cannot make that leader load them.
        """
        self._with_group(admin).put(offsets)

    def _with_group(self, admin: OffsetAdmin) -> OffsetAdmin:
        """Return ``admin`` if the group keeps the offsets; else raise ConfigurationError."""
        if self.in_group:
            return admin
        raise ConfigurationError(
            f"offsets={self.word!r}: the offsets are where the career's own code keeps them; look"
            " at them and set them there"
        )

    # ---- for the consumer thread -----------------------------------------------------------------

    def fence(
        self, consumer: ConsumerClient, term: Term, allowed: Callable[[], None], timeout_s: float
    ) -> bool:
        """From now on refuse commits of earlier leaders, and hold the partitions (as a member of
        the group, or all of them); returns whether that is so yet. Called again until it returns
        ``True``, and when the consumer was replaced within the term.
        """
        term.check()
        return consumer.join(allowed, timeout_s)

    @abstractmethod
    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        """Return the committed offsets; a partition without one is absent."""

    @abstractmethod
    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> CommitFuture:
        """Begin to store these offsets, with the effects that wait for them; one commit is under
        way at a time. The future fails if there is a newer leader, and with ``EffectRefused`` if an
        effect can never be stored. If the outcome is unknown (an error that asks for another try),
        committing the same offsets again completes it, and no effect happens twice.
        """

    def commit_positions(
        self, consumer: ConsumerClient, term: Term, offsets: Offsets
    ) -> CommitFuture:
        """Begin to store offsets without effects: where a partition begins, or the same as before,
        to prove that this leader may. Effects that wait for the batch in hand are not touched.
        """
        return self.commit(consumer, term, offsets)

    def undo(self) -> None:  # noqa: B027 - nothing, where nothing waits
        """Drop the effects of the batch in hand, because it has failed."""

    def close(self) -> None:  # noqa: B027 - nothing, where nothing is held
        """Release everything, because the term is over. May be called twice. Never raises."""


@contextmanager
def errors_of(store: OffsetStore, doing: str) -> Iterator[None]:
    """Within the block, raise a KafkaError, which ends the term, for what a store of the user's
    raises beyond its contract. What leaderq's own let through is of the client library.
    """
    try:
        yield
    except LeaderqError:
        raise
    except BaseException as exc:  # else a SystemExit would end the consumer thread without a word
        if is_from_outside(exc) or type(store).__module__.startswith("leaderq."):
            raise
        what = f"the offset store {store.word!r} failed while {doing}: {told(exc)}"
        raise KafkaError(f"{what}; let it raise StoreAway for what passes by itself") from exc


@dataclass(eq=False)
class Uncommitted:
    """Effects and offsets that belong together, until it is known that they are committed."""

    effects: list[Any]
    offsets: Offsets


class KeepsEffects(OffsetStore):
    """A store whose effects wait in memory until their batch is committed, and vanish if it is not.

    Takes no lock, so adding may be interrupted anywhere; effects of one thread keep their order. No
    thread may still handle the batch in hand when its effects are taken or undone.
    """

    undoes = True
    kept_as: ClassVar[type[Uncommitted]] = Uncommitted

    def __init__(self) -> None:
        self._effects: list[Any] = []
        self._uncommitted: Any = None

    def begin(self, term: Term) -> None:
        self.undo()  # whatever a former term left

    def add(self, effects: Iterable[Any]) -> None:
        added = tuple(effects)
        take_effect(lambda: self._effects.extend(added))

    def take_effects(self) -> list[Any]:
        taken, self._effects = self._effects, []
        return taken

    def undo(self) -> None:
        self._effects, self._uncommitted = [], None

    def _to_commit(self, offsets: Offsets) -> Any:
        """Return what to commit with ``offsets``: the same object each time, until it is settled or
        undone.
        """
        if self._uncommitted is None:
            self._uncommitted = self.kept_as(self.take_effects(), dict(offsets))
        elif self._uncommitted.offsets != offsets:
            raise KafkaError(
                f"offsets {self._uncommitted.offsets} are not committed yet, and {offsets} are to"
                " be; undo() was left out"
            )
        return self._uncommitted

    def _settled(self, uncommitted: Uncommitted) -> None:
        if self._uncommitted is uncommitted:
            self._uncommitted = None


class DoneAtOnce:
    """A :class:`~leaderq.kafka.clients.consumer.CommitFuture` that was done at once."""

    def done(self, wait_s: float) -> bool:
        return True


def checked_offsets(offsets: Mapping[Any, int], what: str) -> dict[Partition, int]:
    """Return the offsets that the user's code ``what`` has returned. Raises ConfigurationError if
    they are malformed.
    """
    if not isinstance(offsets, Mapping):
        raise ConfigurationError(
            f"{what} returned {type(offsets).__name__}; it must return a mapping"
            " of (topic, partition) to the offset to read next, {} if there is none yet"
        )
    problems = []
    for key, value in offsets.items():
        is_place = isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str)
        if not (is_place and _is_count(key[1])):
            problems.append(
                f"{what} returned the key {key!r}; keys are (topic, partition),"
                " such as ('clicks', 0)"
            )
        elif not _is_count(value):
            problems.append(
                f"{what} returned the offset {value!r} for {key!r}; it must be a"
                " whole number, 0 or more"
            )
    require(*problems)
    return {Partition(*key): Offset(at, epoch_of(at)) for key, at in offsets.items()}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
