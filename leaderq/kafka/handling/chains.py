"""What is in hand: which records are handled in order, and up to where they may be committed. Pure,
except for a lock.

A *piece* is what one call of ``handle`` receives. A *chain* is pieces that are handled one after
the other; chains do not wait for each other. A *lane* is pieces that are committed one after the
other, as far as all are done (the *prefix*), with the effects of their calls, which are kept with
them until then. So what is done is never undone because something else fails.

==================  ==============================  ===========  ==================================
shape               a piece                         a lane       a chain
==================  ==============================  ===========  ==================================
``MERGED``          the batch                       the batch    the batch
``PARTITIONS``      its records of one partition    a partition  a partition
``RECORDS``         one record                      a partition  as ``order`` says: a partition, a
                                                                 key of one, or each record
==================  ==============================  ===========  ==================================

A piece that failed is *cut* around its culprit, in its chain and in its lane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import count
from operator import attrgetter

from leaderq.errors import AlreadyStored
from leaderq.kafka.handling.calls import CallFailure
from leaderq.kafka.handling.context import HandlingContext, RecordOrder, is_side_by_side
from leaderq.kafka.record import Batch, Partition, Record, after
from leaderq.kafka.stores.handle_call import Effect
from leaderq.threads import primitives


class ChainShape(Enum):
    """See above."""

    MERGED = "merged"
    PARTITIONS = "partitions"
    RECORDS = "records"

    @classmethod
    def of(cls, context: HandlingContext, careful: Collection[Partition]) -> ChainShape:
        """Return a batch's shape; ``careful``: partitions whose records may kill the process."""
        is_alone = is_side_by_side(context.coroutines, context.order, context.workers)
        if is_alone and not careful:
            return cls.RECORDS
        return cls.PARTITIONS if careful or context.is_by_partition else cls.MERGED


class PieceMode(Enum):
    """How the records of a piece are handed over."""

    TOGETHER = "together"
    ISOLATED = "isolated"
    """One by one, because one of them made them fail together, and it is not known which."""
    CAREFUL = "careful"
    """One by one, each marked durably before, because one of them may kill the process."""


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

    ``ends``: the offsets to commit with it (``None``: the one after the last record of each
    partition). ``failed`` counts its own failed attempts, ``before`` those of a larger piece that
    it was cut from. ``failure``: the failure that must still be judged. ``effects``: what its call
    wants stored, once it is done; if it also has a ``failure``, the store has refused them.
    ``passed_over``: it was skipped, or set aside. ``marked``: its durable mark is set. ``turn``:
    pieces of earlier turns are handled first.
    """

    records: Sequence[Record]
    ends: Mapping[Partition, int] | None = None
    mode: PieceMode = PieceMode.TOGETHER
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

    def part(self, records: Sequence[Record], *, is_end: bool = False) -> BatchPiece:
        """Return a piece of some of its records, handed over in the same way. ``is_end``: they are
        its last ones, and its ``ends`` go with them.
        """
        ends = self.ends if is_end else None
        return BatchPiece(records, ends, self.mode, self.before, chain=self.chain, turn=self.turn)

    def together(self) -> None:
        """Hand its records over together, with nothing counted against them."""
        self.mode, self.before, self.failed = PieceMode.TOGETHER, 0, 0

    def without(self, partition: Partition) -> BatchPiece | None:
        rest = [record for record in self.records if record.topic_partition != partition]
        if len(rest) == len(self.records):
            return self
        return replace(self, records=rest, ends=None) if rest else None


Found = Iterable[tuple[Partition | None, object, Sequence[BatchPiece]]]
"""The lane, the chain, and the pieces that follow those in it."""


def whole(batch: Batch) -> Found:
    """Return the batch as one chain (``MERGED``). Pieces that were noted come first, each by
    itself; the other records are one piece.
    """
    merged, ends, noted = batch.merged(), batch.ends or None, _noted(batch)
    if noted:
        count = {where: len(piece.records) for where, piece in noted.items()}
        left = {where: rows[count.get(where, 0) :] for where, rows in batch.records.items()}
        merged = Batch({where: rows for where, rows in left.items() if rows}, {}).merged()
    pieces = [*noted.values()]
    if merged:
        pieces.append(BatchPiece(merged, None if noted else ends))
    return [(None, None, pieces)] if pieces else []


def by_partitions(batch: Batch, careful: Iterable[Partition]) -> Found:
    noted, careful = _noted(batch), frozenset(careful)
    for where in sorted(where for where, rows in batch.records.items() if rows):
        rows = batch.records[where]
        if where in noted:
            rows = rows[len(noted[where].records) :]
        mode = PieceMode.CAREFUL if where in careful else PieceMode.TOGETHER
        ends = {where: batch.ends[where]} if where in batch.ends else None
        pieces = [noted[where]] if where in noted else []
        if rows:
            pieces.append(BatchPiece(rows, ends, mode))
        yield where, where, pieces


def by_records(records: Sequence[Record], order: RecordOrder) -> Found:
    for record in records:
        where = record.topic_partition
        own: object = None
        if order is not RecordOrder.PARTITION:
            is_alone = order is RecordOrder.NONE or record.key is None
            own = record.offset if is_alone else record.key
        yield where, (where, own), (BatchPiece((record,)),)


def grouped(records: Sequence[Record]) -> Batch:
    """Return some of the records in hand as a batch by partition, without ends."""
    rows: dict[Partition, list[Record]] = {}
    for record in records:
        rows.setdefault(record.topic_partition, []).append(record)
    return Batch(rows, {})


def _noted(batch: Batch) -> dict[Partition, BatchPiece]:
    """Return the pieces that earlier attempts have left, by partition, if the batch begins with
    their records. Others are forgotten, because somebody has moved the offset.
    """
    found = {}
    for where, piece in batch.noted.items():
        rows = batch.records[where]
        if rows[0].offset == piece.records[0].offset:
            found[where] = replace(piece, records=rows[: len(piece.records)], ends=None)
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
        self._ready: list[tuple[int, int, int, int, Chain]] = []
        self._rows: dict[Partition, Sequence[Record]] = {}
        self._turn = 0
        self._ties = count()
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
    def undecided(self) -> list[BatchPiece]:
        """The pieces with a failure that must still be judged."""
        pieces = (piece for chain in self._chains.values() for piece in chain.pieces)
        return [piece for piece in pieces if piece.failure is not None]

    def extend(self, batch: Batch) -> None:
        """Note the rows and the ends of ``batch``, which follow those in hand. Its pieces are given
        to :meth:`add`.
        """
        self._rows.update(batch.records)
        self.ends.update(batch.ends)

    # ---- the order of handling -------------------------------------------------------------------

    def add(self, found: Found) -> None:
        """Add pieces to their chains. Pieces that were added by an earlier call are handled first.
        Among the pieces of one call those of the longest chains are, because the longest chain
        decides how long all of them take.
        """
        with self._lock:
            self._turn += 1
            fresh = []
            for where, name, pieces in found:
                if (chain := self._chains.get(name)) is None:
                    lane = self._lanes.setdefault(where, deque())
                    chain = self._chains[name] = Chain(name, lane, next(self._ties))
                    fresh.append(chain)
                for piece in pieces:
                    piece.chain, piece.turn = chain, self._turn
                chain.pieces.extend(pieces)
                chain.lane.extend(pieces)
            for chain in fresh:
                heappush(self._ready, self._place(chain))

    def _place(self, chain: Chain) -> tuple[int, int, int, int, Chain]:
        # The last number because no two chains may be compared: one ended may have the same.
        return chain.pieces[0].turn, -len(chain.pieces), chain.number, next(self._ties), chain

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

    def split(self, chain: Chain) -> BatchPiece:
        """Return the next piece of a chain that was begun. If its records are handed over one by
        one, the first is cut off and returned.
        """
        piece = chain.pieces[0]
        if piece.mode is not PieceMode.TOGETHER and len(piece.records) > 1:
            first, others = piece.records[:1], piece.records[1:]
            self._replace(piece, [piece.part(first), piece.part(others, is_end=True)])
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
        behind = piece.part(piece.records[at + 1 :], is_end=True)
        for each in (before, behind):
            each.together()
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
        done = piece.part(rows[True], is_end=not rows[False])
        done.is_done = True
        if rows[True]:  # else it is not about these records
            self.done += len(rows[True])
            self._replace(piece, [done, piece.part(rows[False])])
        return bool(rows[True])

    def halve(self, piece: BatchPiece) -> None:
        """Cut the piece into halves that are handled again, because its effects were refused."""
        middle = len(piece.records) // 2
        halves = piece.part(piece.records[:middle]), piece.part(piece.records[middle:], is_end=True)
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

    def ends_of(self, pieces: Iterable[BatchPiece]) -> dict[Partition, int]:
        """Return the offsets to commit when ``pieces`` are done. If they have the last record in
        hand of a partition, that is the batch's end, which may lie after transaction markers.
        """
        ends: dict[Partition, int] = {}
        for piece in pieces:
            if piece.ends is not None:
                ends |= {where: end for where, end in piece.ends.items() if where in self.ends}
                continue
            last = {record.topic_partition: record for record in piece.records}
            for where, record in last.items():
                is_last = where in self.ends and self._rows[where][-1].offset == record.offset
                ends[where] = self.ends[where] if is_last else after(record)
        return ends
