"""The power is cut after any operation on a file, and what was not forced out survives in any part.

Nothing that was promised is lost then, comes twice under one id, or changes its order; nothing that
was acknowledged by a flush comes back. The ordinary run tries some hundred cuts; with
``LEADERQ_TEST_FAULTS=10000`` so many. Each call that forces something out has a mutant without it.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import crash, flip, no_space
from power_cut import Moment, PowerCutDisk, platter
from scripted_sink import ScriptedSink, is_away, takes

from leaderq.errors import JournalFull
from leaderq.producing import EVERY_ITEM, NO_SYNC, BufferedProducer, Every, Interval, Journal
from leaderq.producing.journal import Policy, index, recovery
from leaderq.testing import eventually

CUTS = max(240, int(os.environ.get("LEADERQ_TEST_FAULTS", "0") or 0))
POLICIES = [EVERY_ITEM, EVERY_ITEM, Every(3), NO_SYNC]
SEGMENT = 4096


class Host:
    """Folders below ``root``; each cut of the power is followed by a boot with an id of its own."""

    def __init__(self, root: Path) -> None:
        self._root, self._folders = root, 0
        self.boot_id = secrets.token_bytes(16)

    def folder(self) -> Path:
        self._folders += 1
        made = self._root / f"place{self._folders}"
        made.mkdir()
        return made

    def after(self, moment, folder, luck, share=None):
        """Return what there is of ``folder`` after a cut at that moment."""
        found = self.folder()
        platter(moment, folder, found, luck, share)
        self.boot_id = secrets.token_bytes(16)
        return found


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    one = Host(tmp_path)
    for module in (index, recovery):
        monkeypatch.setattr(module, "boot_id", lambda: one.boot_id)
    monkeypatch.setattr("leaderq.producing.journal.line.CHORES_EVERY_S", 0.002)
    yield one
    shutil.rmtree(tmp_path, ignore_errors=True)


Facts = tuple[int, int, frozenset[int], frozenset[int]]


class Life:
    """A journal that is used for a while. ``told``: ids that were told, with their payloads;
    ``safe``: how many of these a flush has forced out; ``done``: ids acknowledged; ``flushed``:
    those that must stay so."""

    def __init__(self, luck: random.Random, policy: Policy) -> None:
        self.luck, self.policy = luck, policy
        self.told: list[tuple[int, bytes]] = []
        self.safe = 0
        self.done: set[int] = set()
        self.flushed: frozenset[int] = frozenset()
        self.number = 0

    def facts(self) -> Facts:
        return len(self.told), self.safe, frozenset(self.done), self.flushed

    def payload(self) -> bytes:
        self.number += 1
        size = self.luck.choice([0, 10, 10, 300, 1500])
        return b"%d:" % self.number + self.luck.randbytes(size)

    def note(self, number: int, payload: bytes) -> None:
        self.told.append((number, payload))  # by two threads, so not in the order of the ids

    def live(self, journal: Journal, steps: int) -> None:
        uses = [self.append, self.append, self.append, self.append_soon, self.ack, self.flush]
        for _ in range(steps):
            self.luck.choice(uses)(journal)

    def append(self, journal: Journal) -> None:
        many = [self.payload() for _ in range(self.luck.choice([1, 1, 2]))]
        ids = journal.append_many(many) if many[1:] else [journal.append(*many)]
        for number, payload in zip(ids, many, strict=True):
            self.note(number, payload)

    def append_soon(self, journal: Journal) -> None:
        for _ in range(self.luck.randrange(4)):
            payload = self.payload()
            journal.append_soon(
                payload, lambda number, error, payload=payload: self.note(number, payload)
            )

    def ack(self, journal: Journal) -> None:
        ids = [number for number, _ in self.told]
        some = ids[: len(ids) * 2 // 3]  # so that whole segments go
        if self.luck.random() < 0.5:
            some = self.luck.sample(ids, min(len(ids), 5))
        self.done.update(some)
        journal.ack_many(some)

    def flush(self, journal: Journal) -> None:
        told, done = len(self.told), frozenset(self.done)
        journal.flush()
        self.safe = max(self.safe, told)
        self.flushed = done

    def check(self, journal: Journal, facts: Facts) -> None:
        told, safe, done, flushed = facts
        found = journal.read(max_items=1 << 30, max_bytes=1 << 40)
        there = {record.id: record.payload for record in found}
        assert list(there) == sorted(there)
        assert len(there) == len(found)
        promised = dict(self.told[:safe])
        if isinstance(self.policy, Every):
            by_id = sorted(self.told[:told])
            promised |= dict(by_id[: max(0, len(by_id) - self.policy.items + 1)])
        for number, payload in promised.items():
            if number not in done:
                assert there.get(number) == payload, f"record {number} is lost"
        known = dict(self.told)
        assert all(known.get(number, payload) == payload for number, payload in there.items())
        assert not set(there) & flushed, "an acknowledgement is lost"
        last = max((number for number, _ in self.told[:told]), default=0)
        assert journal.next_id > last, "an id is given out twice"


def opened(life, folder, chance=0.0, segment_bytes=SEGMENT):
    disk = PowerCutDisk(folder, life.luck, chance, life.facts)
    return Journal(
        folder / "above" / "journal", sync=life.policy, segment_bytes=segment_bytes, disk=disk
    ), disk


def checked(life: Life, folder: Path, facts: Facts, chance: float = 0.0) -> PowerCutDisk:
    """Open what is left, see that it holds what was promised, and close it; return its disk."""
    journal, disk = opened(life, folder, chance)
    life.check(journal, facts)
    journal.close()
    return disk


def chosen(luck: random.Random, moments: list[Moment], most: int) -> list[Moment]:
    return luck.sample(moments, min(most, len(moments)))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_a_power_cut_costs_nothing_that_was_promised(host, seed):
    luck, cuts = random.Random(seed), 0
    while cuts < CUTS / 4:
        life, first = Life(luck, luck.choice(POLICIES)), host.folder()
        journal, disk = opened(life, first, 0.2, luck.choice([SEGMENT, SEGMENT, 8 << 20]))
        for _ in range(luck.choice([1, 2])):  # openings
            life.live(journal, luck.randrange(4, 25))
            luck.choice([Journal.close, crash])(journal)  # the process ends, the host does not
            journal = Journal(first / "above" / "journal", sync=life.policy, disk=disk)
            life.done -= {record.id for record in journal.read(max_items=1 << 30)}
        journal.close()
        for moment in chosen(luck, disk.moments, 12):
            cuts += 1
            place = host.after(moment, first, luck)
            # A second cut, in the recovery from the first or soon after it.
            second = checked(life, place, moment.facts, 0.5)
            for later in chosen(luck, second.moments, 2):
                cuts += 1
                last = host.after(later, place, luck)
                checked(life, last, moment.facts)
                shutil.rmtree(last)
            shutil.rmtree(place)
        shutil.rmtree(first)


@pytest.mark.parametrize("policy", [EVERY_ITEM, Every(3), Interval(600), NO_SYNC])
@pytest.mark.parametrize("ends", ["flush", "kill", "nothing"])
def test_all_that_a_flush_or_an_opening_leaves_behind_is_forced_out(host, policy, ends):
    """Nothing that was not forced out survives; what was told as stored fills several segments."""
    life, first = Life(random.Random(1), policy), host.folder()
    journal, disk = opened(life, first)
    for _ in range(10):
        # two of a segment, fewer than Every(3) forces out
        payload = life.payload().ljust(1400, b".")
        life.note(journal.append(payload), payload)
    if ends == "flush":
        journal.flush()
    elif ends == "kill":
        crash(journal)
        journal = Journal(first / "above" / "journal", sync=policy, disk=disk)
    life.safe = 0 if ends == "nothing" else len(life.told)
    moment = disk.now()
    journal.close()
    checked(life, host.after(moment, first, life.luck, share=0.0), moment.facts)


def test_what_an_interval_has_forced_out_outlasts_a_cut(host):
    life, first = Life(random.Random(5), Interval(0.01)), host.folder()
    journal, disk = opened(life, first)
    for _ in range(5):
        before = journal.counters.fsyncs
        life.append(journal)
        eventually(lambda: journal.counters.fsyncs > before)  # noqa: B023 - called at once
    life.safe = len(life.told)
    moment = disk.now()
    journal.close()
    checked(life, host.after(moment, first, life.luck, share=0.0), moment.facts)


def test_the_system_is_asked_to_force_out_each_record_and_each_name(tmp_path, monkeypatch):
    """The other tests here replace these calls; the real disk makes them."""
    forced: dict[str, list[int]] = {"fsync": [], "fdatasync": []}
    for name, inodes in forced.items():
        real = getattr(os, name, os.fsync)  # macOS has no fdatasync

        def spy(fd: int, real: Any = real, inodes: list[int] = inodes) -> None:
            inodes.append(os.fstat(fd).st_ino)
            real(fd)

        monkeypatch.setattr(os, name, spy, raising=False)
    place = tmp_path / "above" / "journal"
    with Journal(place) as journal:
        directories = {one.stat().st_ino for one in (tmp_path, place.parent, place)}
        assert directories <= set(forced["fsync"])
        (segment,) = place.glob("*.seg")
        for number in range(1, 4):
            journal.append(b"record")
            assert forced["fdatasync"].count(segment.stat().st_ino) == number


@pytest.mark.timeout(3600)
def test_a_power_cut_costs_no_request_that_a_producer_has_taken(host):
    """Two producers, one after the other, on one journal; their sink takes and refuses by turns."""
    cuts = 0
    luck = random.Random(17)
    while cuts < CUTS / 8:
        sent: list[int] = []
        sink = ScriptedSink()
        first = host.folder()
        facts = lambda sent=sent, sink=sink: (len(sent), list(sink.confirmed))  # noqa: E731
        disk = PowerCutDisk(first, luck, 0.15, facts)
        for start in (0, 100):
            sink.now(luck.choice([takes, is_away]))
            journal = Journal(first / "j", sync=EVERY_ITEM, segment_bytes=SEGMENT, disk=disk)
            one = BufferedProducer(
                sink, journal=journal, persistence=EVERY_ITEM, linger_s=0.0, max_items=5
            )
            for number in range(start, start + 12):
                try:
                    one.send(number)
                except JournalFull:
                    continue
                sent.append(number)
            one.close(0.05)
            journal.close()
        for moment in chosen(luck, disk.moments, 10):
            cuts += 1
            place = host.after(moment, first, luck)
            count, confirmed = moment.facts
            after = ScriptedSink()
            with BufferedProducer(after, journal=place / "j", persistence=EVERY_ITEM) as last:
                assert last.flush(60).pending == 0
            fresh = [number for number in after.confirmed if number not in confirmed]
            assert set(sent[:count]) <= set(confirmed) | set(after.confirmed)
            assert fresh == sorted(fresh)
            shutil.rmtree(place)
        shutil.rmtree(first)


@pytest.mark.parametrize("what", ["segment", "tail"])
def test_a_power_cut_deletes_nothing_that_is_damaged(host, what):
    """A segment; or, after a kill, a last record that was whole once, and is not."""
    luck = random.Random(3)
    for _ in range(8):
        life, first = Life(luck, EVERY_ITEM), host.folder()
        journal, _ = opened(life, first)
        ids = [journal.append(b"x" * 1000) for _ in range(8 if what == "segment" else 3)]
        (Journal.close if what == "segment" else crash)(journal)
        files = sorted((first / "above" / "journal").glob("*.seg"))
        damaged, begin = files[0], 0
        if what == "tail":
            damaged = files[-1]
            begin = damaged.stat().st_size - 1000
        flip(damaged, begin + 500)
        data = damaged.read_bytes()[begin:]
        journal, disk = opened(life, first, 1.0)
        if what == "tail":
            journal.append(b"next")
        else:
            journal.read(max_items=100)
            journal.ack_many(ids)
            journal.flush()
            eventually(lambda journal=journal: journal.counters.set_aside)
        journal.close()
        for moment in chosen(luck, disk.moments, 20):
            journal, _ = opened(life, host.after(moment, first, life.luck))
            journal.close()
            kept = [path.read_bytes() for path in journal.directory.glob("*.seg*")]
            assert any(data in one for one in kept)


def test_what_a_flush_acknowledged_stays_so_on_a_disk_without_room_for_a_segment(host):
    """Names of new cursor files are forced out, though no segment is made."""
    life, first = Life(random.Random(2), EVERY_ITEM), host.folder()
    journal, _ = opened(life, first)
    for _ in range(3):
        life.append(journal)
    journal.close()
    for path in (first / "above" / "journal").glob("cursor.*"):
        path.unlink()
    life.safe = len(life.told)

    class Full(PowerCutDisk):
        def create(self, path: Path) -> int:
            if path.suffix == ".seg":
                raise no_space()
            return super().create(path)

    disk = Full(first, life.luck, 0.0, life.facts)
    journal = Journal(first / "above" / "journal", segment_bytes=SEGMENT, disk=disk)
    life.done = {life.told[0][0]}
    journal.ack_many(life.done)
    life.flush(journal)
    moment = disk.now()
    journal.close()
    checked(life, host.after(moment, first, life.luck, share=0.0), moment.facts)
