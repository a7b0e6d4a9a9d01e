"""What is in hand: which records are handled in order, and up to where they may be committed. Pure,
except for a lock.

A *piece* is what one call of ``handle`` receives. A *chain* is pieces that are handled one after
the other; chains do not wait for each other. A *lane* is pieces that are committed one after the
other, as far as all are done (the *prefix*), with the effects of their calls, which are kept with
them until then. So what is done is never undone because something else fails.

==================  ==============================  ===========  ==================================
cut                 a piece                         a lane       a chain
==================  ==============================  ===========  ==================================
``whole``           the batch                       the batch    the batch
``by_partitions``   its records of one partition    a partition  a partition
``by_records``      one record                      a partition  as ``order`` says: a partition, a
                                                                 key of one, or each record
==================  ==============================  ===========  ==================================

A piece that failed is *cut* around its culprit, in its chain and in its lane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import count
from operator import attrgetter

from leaderq.errors import AlreadyStored
from leaderq.kafka.handling.calls import CallFailure
from leaderq.kafka.handling.context import RecordOrder
from leaderq.kafka.record import Batch, Partition, Record, after
from leaderq.kafka.stores.handle_call import Effect
from leaderq.threads import primitives


class Chain:
    """A chain. ``pieces``: those that are not done, in order; ``lane``: that of all its pieces."""

    __slots__ = ("lane", "name", "number", "pieces")

    def __init__(self, name: object, lane: deque[BatchPiece], number: int) -> None:
        self.name = name
        self.lane = lane
        self.number = number
        self.pieces: deque[BatchPiece] = deque()


_NOWHERE = Chain(None, deque(), 0)


@dataclass(eq=False, slots=True)
class BatchPiece:
    """Some records, and how they have fared so far.

    ``isolated``: its records are handed over one by one, because one of them made them fail
    together, and it is not known which. ``failed`` counts its own failed attempts, ``before`` those
    of a larger piece that it was cut from. ``failure``: the failure that must still be judged.
    ``effects``: what its call wants stored, once it is done; if it also has a ``failure``, the
    store has refused them. ``passed_over``: it was skipped, or set aside. ``marked``: its durable
    mark is set. ``turn``: pieces of earlier turns are handled first.
    """

    records: Sequence[Record]
    isolated: bool = False
    before: int = 0
    failed: int = 0
    failure: CallFailure | None = None
    effects: Sequence[Effect] = ()
    is_done: bool = False
    passed_over: bool = False
    marked: bool = False
    chain: Chain = field(default=_NOWHERE, repr=False)
    turn: int = 0

    @property
    def attempts(self) -> int:
        return self.before + self.failed

    def part(self, records: Sequence[Record]) -> BatchPiece:
        """Return a piece of some of its records, handed over in the same way."""
        return BatchPiece(records, self.isolated, self.before, chain=self.chain, turn=self.turn)

    def together(self) -> None:
        """Hand its records over together, with nothing counted against them."""
        self.isolated, self.before, self.failed = False, 0, 0

    def without(self, partition: Partition) -> BatchPiece | None:
        rest = [record for record in self.records if record.topic_partition != partition]
        if len(rest) == len(self.records):
            return self
        return replace(self, records=rest) if rest else None


Rested = dict[Partition, BatchPiece]
"""The pieces whose partitions rest, or have rested, with their attempts."""
Found = Iterable[tuple[Partition | None, object, Sequence[BatchPiece]]]
"""The lane, the chain, and the pieces that follow those in it."""


def whole(batch: Batch, rested: Rested) -> Found:
    """Pieces that have rested come first, each by itself; the other records are one piece."""
    if again := _again(batch, rested):
        count = {where: len(piece.records) for where, piece in again.items()}
        left = {where: rows[count.get(where, 0) :] for where, rows in batch.records.items()}
        batch = Batch({where: rows for where, rows in left.items() if rows})
    pieces = list(again.values())
    if batch.records:
        pieces.append(BatchPiece(batch.merged()))
    return [(None, None, pieces)] if pieces else []


def by_partitions(batch: Batch, rested: Rested) -> Found:
    again = _again(batch, rested)
    for where in sorted(batch.records):
        rows, pieces = batch.records[where], []
        if where in again:
            pieces.append(again[where])
            rows = rows[len(pieces[0].records) :]
        if rows:
            pieces.append(BatchPiece(rows))
        yield where, where, pieces


def by_records(records: Sequence[Record], order: RecordOrder) -> Found:
    for record in records:
        where = record.topic_partition
        own: object = None
        if order is not RecordOrder.PARTITION:
            is_alone = order is RecordOrder.NONE or record.key is None
            own = record.offset if is_alone else record.key
        yield where, (where, own), (BatchPiece((record,)),)


def _again(batch: Batch, rested: Rested) -> dict[Partition, BatchPiece]:
    """Return the pieces that have rested, if the batch begins with their records. Others are
    forgotten: they are done, or somebody has moved the offset.
    """
    found = {}
    for where in batch.records.keys() & rested.keys():
        rows, piece = batch.records[where], rested[where]
        if rows[0].offset == piece.records[0].offset:
            found[where] = replace(piece, records=rows[: len(piece.records)])
        else:
            del rested[where]
    return found


class InHand:
    """All records that are handed out and not committed. A chain that was begun belongs to the
    thread or coroutine that follows it. Lanes, and chains that nobody follows, belong to the thread
    that commits.
    """

    def __init__(self) -> None:
        self._lock = primitives.Lock()
        self._chains: dict[object, Chain] = {}
        self._lanes: dict[Partition | None, deque[BatchPiece]] = {}
        self._ready: list[tuple[int, int, int, Chain]] = []
        self._turn = 0
        self._numbers = count()
        self.ends: dict[Partition, int] = {}
        """To be committed once all of it is done."""
        self.done = 0
        """How many records were handled."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to be handled."""
        return not self._chains

    @property
    def ready(self) -> int:
        """How many chains wait until a thread or a coroutine follows them."""
        return len(self._ready)

    @property
    def uncommitted(self) -> int:
        """How many pieces are not committed."""
        return sum(map(len, self._lanes.values()))

    @property
    def fronts(self) -> list[BatchPiece]:
        """The next piece of each chain, in order of the chains."""
        return [one.pieces[0] for one in sorted(self._chains.values(), key=attrgetter("number"))]

    @property
    def undecided(self) -> list[tuple[BatchPiece, CallFailure]]:
        """The pieces whose failure must still be judged."""
        pieces = (piece for chain in self._chains.values() for piece in chain.pieces)
        return [(piece, piece.failure) for piece in pieces if piece.failure is not None]

    # ---- the order of handling -------------------------------------------------------------------

    def add(self, batch: Batch, found: Found) -> None:
        """Add ``batch``, which follows what is in hand, with its pieces. Pieces that were added by
        an earlier call are handled first. Among the pieces of one call those of the longest chains
        are, because the longest chain decides how long all of them take.
        """
        self.ends.update(batch.ends)
        with self._lock:
            self._turn += 1
            fresh = []
            for where, name, pieces in found:
                if (chain := self._chains.get(name)) is None:
                    lane = self._lanes.setdefault(where, deque())
                    chain = self._chains[name] = Chain(name, lane, next(self._numbers))
                    fresh.append(chain)
                for piece in pieces:
                    piece.chain, piece.turn = chain, self._turn
                chain.pieces.extend(pieces)
                chain.lane.extend(pieces)
            for chain in fresh:
                heappush(self._ready, self._place(chain))

    @staticmethod
    def _place(chain: Chain) -> tuple[int, int, int, Chain]:
        return chain.pieces[0].turn, -len(chain.pieces), chain.number, chain

    def restart(self) -> None:
        """Make all chains ready, except those whose failure must be judged. Nobody may be following
        a chain.
        """
        left = [one for one in self._chains.values() if one.pieces[0].failure is None]
        self._ready = [self._place(chain) for chain in left]
        heapify(self._ready)

    def begin(self, admits: Callable[[BatchPiece], bool]) -> Chain | None:
        """Return the chain whose next piece is to be handled now; ``None``: none is admitted."""
        with self._lock:
            while self._ready:
                chain = heappop(self._ready)[-1]
                if admits(chain.pieces[0]):
                    return chain
        return None

    def split(self, chain: Chain, *, careful: bool = False) -> BatchPiece:
        """Return the next piece of a chain that was begun. If its records are handed over one by
        one (``careful``: whatever it says itself), the first is cut off and returned.
        """
        piece = chain.pieces[0]
        if (careful or piece.isolated) and len(piece.records) > 1:
            self._replace(piece, [piece.part(piece.records[:1]), piece.part(piece.records[1:])])
        return chain.pieces[0]

    def advance(self, piece: BatchPiece, effects: Sequence[Effect] = ()) -> None:
        """Note that ``piece``, the next of its chain, is done or passed over."""
        piece.effects, piece.is_done = effects, True
        chain = piece.chain
        with self._lock:
            chain.pieces.popleft()
            if not piece.passed_over:
                self.done += len(piece.records)
            if not chain.pieces:
                del self._chains[chain.name]
            elif chain.pieces[0].failure is None:
                heappush(self._ready, self._place(chain))

    # ---- a piece that failed ---------------------------------------------------------------------

    def cut(self, piece: BatchPiece, failure: CallFailure, *, undoes: bool) -> None:
        """Cut the piece around the culprit. The records in front of it are done, unless their
        effects were undone. If the culprit is not known, note the failure of the whole piece.
        """
        at = failure.index
        counts = int(not failure.is_outage)
        if at is None or len(piece.records) == 1:
            piece.failed += counts
            piece.failure = failure
            return
        before, culprit = piece.part(piece.records[:at]), piece.part(piece.records[at : at + 1])
        before.is_done = failure.touched and not undoes
        self.done += at if before.is_done else 0
        culprit.before, culprit.failed, culprit.failure = piece.attempts, counts, failure
        behind = piece.part(piece.records[at + 1 :])
        self._replace(piece, [before, culprit, behind])

    def is_stored(self, piece: BatchPiece, failure: CallFailure) -> bool:
        """Whether the failure says that records of the piece are stored. If so, cut them off: they
        are done.
        """
        if not isinstance(stored := failure.error, AlreadyStored):
            return False
        rows: dict[bool, list[Record]] = {True: [], False: []}
        for record in piece.records:
            is_its = record.topic_partition == stored.where
            rows[is_its and record.offset < stored.stored].append(record)
        done = piece.part(rows[True])
        done.is_done = True
        if rows[True]:  # else it is not about these records
            self.done += len(rows[True])
            self._replace(piece, [done, piece.part(rows[False])])
        return bool(rows[True])

    def halve(self, piece: BatchPiece) -> None:
        """Cut the piece into halves that are handled again, because its effects were refused."""
        middle = len(piece.records) // 2
        halves = piece.part(piece.records[:middle]), piece.part(piece.records[middle:])
        self._replace(piece, halves)

    def drop(self, partition: Partition) -> None:
        """Forget the records of ``partition``; they will be handed out again."""
        self.ends.pop(partition, None)
        for lane in self._lanes.values():
            for piece in [each for each in lane if not each.is_done]:
                rest = piece.without(partition)
                if rest is not piece:
                    self._replace(piece, [] if rest is None else [rest])

    def _replace(self, piece: BatchPiece, parts: Iterable[BatchPiece]) -> None:
        found, lane = [part for part in parts if part.records], piece.chain.lane
        at = lane.index(piece)
        del lane[at]
        for part in reversed(found):
            lane.insert(at, part)
        # It may have come to its end meanwhile, and another may have begun.
        chain = self._chains.get(piece.chain.name, piece.chain)
        place = chain.pieces.index(piece) if piece in chain.pieces else 0
        if piece in chain.pieces:
            del chain.pieces[place]
        for part in reversed([part for part in found if not part.is_done]):
            part.chain = chain
            chain.pieces.insert(place, part)
        if chain.pieces:
            self._chains[chain.name] = chain
        else:
            self._chains.pop(chain.name, None)

    # ---- the order of committing -----------------------------------------------------------------

    def finished(self, *, alone: bool) -> list[BatchPiece]:
        """Return the pieces that may be committed, lane by lane; ``alone``: only the first one."""
        found = []
        for lane in self._lanes.values():
            for piece in lane:
                if not piece.is_done or piece.failure is not None:
                    break
                found.append(piece)
                if alone:
                    return found
        return found

    def settle(self, pieces: Iterable[BatchPiece]) -> None:
        """Remove ``pieces``, which were committed, from the beginning of their lanes."""
        for piece in pieces:
            piece.chain.lane.popleft()


def ends_of(pieces: Iterable[BatchPiece]) -> dict[Partition, int]:
    """Return the offsets to commit when ``pieces`` are done."""
    last = {record.topic_partition: record for piece in pieces for record in piece.records}
    return {where: after(record) for where, record in last.items()}
