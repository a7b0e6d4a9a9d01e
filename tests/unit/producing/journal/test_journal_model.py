"""A journal beside a model of it, through any sequence of uses, crashes and faults. It is at rest
before each use, so that a sequence runs twice alike.

The model knows which records were accepted, which may be there or not (appended with an error, or
not synced when the process died), which are acknowledged for good, and which of these
acknowledgements may be forgotten.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from faulty_disk import QuickDisk, crash, failing, flip, io_error, no_space, segments
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leaderq.errors import JournalFailed, JournalSlow
from leaderq.producing.journal import EVERY_ITEM, NO_SYNC, Every, Journal, line
from leaderq.producing.journal.records import HEAD_BYTES
from leaderq.producing.journal.segments import HEADER_BYTES
from leaderq.testing import eventually


@pytest.fixture(autouse=True, scope="module")
def impatient() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line, "AGAIN_S", 0.002)
        patch.setattr(line, "CHORES_EVERY_S", 86_400.0)  # only what is kicked
        patch.setattr("leaderq.base.chance.token_bits", lambda _bits: 7)
        yield


class JournalMachine(RuleBasedStateMachine):
    """``accepted``: what must be read unless ``acked``; a crash may undo ``forgettable``."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="leaderq-journal-"))
        self.disk = QuickDisk()
        self.accepted: dict[int, bytes] = {}
        self.acked: set[int] = set()
        self.forgettable: set[int] = set()
        self.hurt: dict[int, bytes] = {}
        self.highest = 0
        self.serial = 0
        self.journal: Journal | None = None

    @initialize(policy=st.sampled_from([EVERY_ITEM, Every(3), NO_SYNC]))
    def start(self, policy):
        self.policy = policy
        self.open()

    def open(self) -> None:
        self.journal = Journal(self.place, sync=self.policy, segment_bytes=4096, disk=self.disk)

    def payload(self, size: int) -> bytes:
        self.serial += 1
        return (b"%d:" % self.serial).ljust(size, b".")

    def took(self, first: int, payloads: list[bytes]) -> None:
        assert first > self.highest, "an id is given once"
        for record_id, payload in enumerate(payloads, first):
            self.accepted[record_id] = payload
        self.highest = first + len(payloads) - 1

    @rule(sizes=st.integers(0, 1500) | st.lists(st.integers(0, 300), min_size=1, max_size=8))
    def append(self, sizes):
        if isinstance(sizes, int):
            payload = self.payload(sizes)
            self.took(self.journal.append(payload), [payload])
        else:
            payloads = [self.payload(size) for size in sizes]
            self.took(self.journal.append_many(payloads)[0], payloads)

    @rule(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=8))
    def append_soon(self, sizes):
        told: list[int] = []
        payloads = [self.payload(size) for size in sizes]
        for payload in payloads:
            self.journal.append_soon(payload, lambda record_id, _: told.append(record_id))
        self.journal.flush()
        self.forgettable.clear()
        assert told == list(range(told[0], told[0] + len(payloads)))
        self.took(told[0], payloads)

    @rule(size=st.integers(0, 1500), room=st.integers(0, 100))
    def append_to_a_full_disk(self, size, room):
        self.disk.room = room
        self.append_in_vain(self.payload(size))
        self.disk.room = None
        eventually(lambda: self.journal.trouble is None)

    def append_in_vain(self, payload: bytes) -> None:
        """It keeps its place, whatever its caller is told."""
        number = self.journal.next_id
        with suppress(JournalSlow):
            assert self.journal.append(payload) == number
        self.took(number, [payload])

    @rule(
        call=st.sampled_from(["write", "sync", "create", "truncate", "rename", "remove"]),
        error=st.sampled_from([io_error, no_space]),
    )
    def append_with_a_fault(self, call, error):
        self.disk.fail[call] = failing(error)
        self.append_in_vain(self.payload(200))
        self.disk.fail.clear()
        eventually(lambda: self.journal.trouble is None)
        with suppress(JournalFailed):
            # tells of a sync that failed behind the back of accepted records
            self.journal.flush()
        self.journal.flush()
        self.forgettable.clear()

    @rule()
    def use_up_the_segment(self):
        """As on a full disk: it is begun anew, if all in it is done with."""
        self.disk.free = 0
        with self.journal._gate:
            self.journal._committer.kick()
        self.journal.flush()
        self.forgettable.clear()
        self.disk.free = None

    def chosen(self, places: list[int]) -> list[int]:
        """The ids at these places, counted round; what is drawn depends on no state."""
        ids = sorted(self.accepted)
        return [ids[place % len(ids)] for place in places] if ids else []

    @rule(places=st.lists(st.integers(0, 199), max_size=10), is_up_to=st.booleans())
    def ack(self, places, is_up_to):
        ids = self.chosen(places[:1] if is_up_to else places)
        fresh = set(ids) - self.acked
        if is_up_to and ids:
            fresh = {one for one in self.accepted if one <= ids[0]} - self.acked
            assert self.journal.ack_to(ids[0]) == len(fresh)
        else:
            assert self.journal.ack_many(ids) == len(fresh)
        self.acked |= fresh
        self.forgettable |= fresh

    @rule(after=st.integers(0, 60), max_items=st.integers(1, 20), max_bytes=st.integers(1, 5000))
    def read(self, after, max_items, max_bytes):
        wanted = [(number, self.accepted[number]) for number in self.left() if number > after]
        entries = self.journal.read(after, max_items=max_items, max_bytes=max_bytes)
        found = [(entry.id, entry.payload) for entry in entries]
        assert found == wanted[: len(found)]
        assert len(found) <= max_items
        assert bool(found) == bool(wanted)

    @rule()
    def reopen(self):
        self.journal.close()
        self.forgettable.clear()
        self.open()
        assert self.journal.report.was_clean
        assert not any(damage.lost for damage in self.journal.report.damages)

    @rule(data=st.binary(max_size=60))
    def killed(self, data):
        """In the middle of a write of ``data``."""
        crash(self.journal)
        with segments(self.place)[-1].open("ab") as file:
            file.write(data)
        self.open()
        assert data or not any(damage.lost for damage in self.journal.report.damages)
        self.take_back_forgotten()

    @rule(
        which=st.floats(0, 0.999),
        share=st.floats(0, 0.999),
        mask=st.integers(1, 255),
        clean=st.booleans(),
    )
    def any_byte_flipped(self, which, share, mask, clean):
        self.journal.close() if clean else crash(self.journal)
        files = segments(self.place)
        path = files[int(len(files) * which)]
        offset = int(path.stat().st_size * share)
        flip(path, offset, mask)
        self.open()
        self.take_back_forgotten()
        lost = set(self.left()) - {entry.id for entry in self.everything()}
        assert len(lost) <= (0 if offset < HEADER_BYTES else 1)
        cut_off = self.journal.report.torn_bytes // HEAD_BYTES
        assert len(lost) <= self.journal.counters.corrupt + cut_off, "what is missing is counted"
        for record_id in lost:
            self.hurt[record_id] = self.accepted.pop(record_id)

    @rule(
        slots=st.sampled_from([(0,), (1,), (0, 1)]),
        how=st.sampled_from(["flipped", "zeros", "cut", "gone"]),
        offset=st.integers(0, 99),
    )
    def cursor_slots_spoilt(self, slots, how, offset):
        """Without any cursor everything that is still there comes again, and no id does."""
        self.journal.close()
        for slot in slots:
            path = self.place / f"cursor.{slot}"
            data = bytearray(path.read_bytes())
            if how == "flipped":
                data[offset] ^= 1
            path.write_bytes(data[:30] if how == "cut" else data if how == "flipped" else b"")
            if how == "zeros":
                os.truncate(path, len(data))
            elif how == "gone":
                path.unlink()
        self.open()
        assert self.journal.report.cursor_lost or slots != (0, 1) or how == "flipped"
        self.forgettable |= self.acked
        self.take_back_forgotten()

    def take_back_forgotten(self) -> None:
        """Acknowledgements not saved may be forgotten; then the records are whole again."""
        there = {entry.id: entry.payload for entry in self.everything()}
        back = self.acked & there.keys()
        assert back <= self.forgettable
        self.acked -= back
        self.forgettable -= back

    def everything(self) -> list[object]:
        found, after = [], 0
        while entries := self.journal.read(after, max_items=5):
            for entry in entries:
                assert entry.id > after, "in order"
                if entry.id not in self.accepted and entry.id in self.hurt:
                    # the same bit was flipped again: it is whole once more
                    self.accepted[entry.id] = self.hurt.pop(entry.id)
                assert self.accepted[entry.id] == entry.payload, "as it was appended"
                after = entry.id
                found.append(entry)
        return found

    def left(self) -> list[int]:
        return sorted(self.accepted.keys() - self.acked)

    def rest(self) -> None:
        """Wait until the journal's thread has done its chores, and has nothing to do."""
        for _ in range(2):
            with suppress(JournalFailed):
                self.journal.await_stored(None, timeout_s=30)

    @invariant()
    def all_is_there(self):
        if self.journal is not None:
            self.rest()
            assert [entry.id for entry in self.everything()] == self.left()
            assert self.journal.depth == len(self.left())

    def teardown(self) -> None:
        if self.journal is not None:
            self.journal.close()
        with Journal(self.place) as again:
            found = again.read(max_items=10_000, max_bytes=1 << 30)
            assert {entry.id for entry in found} == set(self.left())
        shutil.rmtree(self.place)


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(
    max_examples=2 * int(os.environ.get("LEADERQ_TEST_FAULTS", "20")),
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    database=None,
)
