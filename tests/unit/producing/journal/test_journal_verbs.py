"""``leaderq journal``: what is shown, checked, written out, given up; beside a process that has it
open, and without.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import at_record, flip, segments

from leaderq.base.exits import ExitCode
from leaderq.cli import main
from leaderq.cli.journal import JournalSending
from leaderq.cli.signals import Stopping
from leaderq.errors import ConfigurationError
from leaderq.producing import BatchOutcome
from leaderq.producing.journal import Journal


@pytest.fixture
def filled(place: Path) -> Path:
    with Journal(place, segment_bytes=4096) as journal:
        for numbers in (range(1, 32), range(32, 63), range(63, 70)):
            journal.append_many([b"%099d" % number for number in numbers])
        journal.ack_many([1, 2, 40])
    return place


def objects(capfd: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def test_inspect_shows_segments_ids_and_acknowledged(filled, capfd):
    assert main(["journal", "inspect", str(filled), "--json"]) == ExitCode.OK
    with Journal(filled):
        assert main(["journal", "inspect", str(filled), "--json"]) == ExitCode.OK
    whole, *rest = objects(capfd)
    assert [one["open"] for one in (whole, *rest) if "open" in one] == [False, True]
    assert (whole["waiting"], whole["next_id"]) == (66, 70)
    segments = [one for one in rest if one.get("records")]
    found = [(one["first_id"], one["last_id"], one["acknowledged"]) for one in segments]
    assert found[:3] == [(1, 31, 2), (32, 62, 1), (63, 69, 0)]


def test_verify_finds_what_is_spoilt_and_says_so_with_its_exit_code(filled, capfd):
    assert main(["journal", "verify", str(filled)]) == ExitCode.OK
    assert capfd.readouterr().err.startswith("sound: 69 records")
    flip(segments(filled)[1], at_record(3, 99) + 40)
    flip(segments(filled)[0], 9)
    assert main(["journal", "verify", str(filled), "--json"]) == ExitCode.FAILED
    *damages, whole = objects(capfd)
    assert [damage["lost_ids"] for damage in damages] == [None, [35, 35]]
    assert (whole["sound"], whole["lost"]) == (False, 1)


def test_verify_beside_a_process_that_writes_finds_nothing_wrong(place, capfd):
    with Journal(place, segment_bytes=4096) as journal:
        for _ in range(30):
            journal.append_many([b"x" * 100] * 5)
            assert main(["journal", "verify", str(place)]) == ExitCode.OK


def test_replay_writes_what_waits_in_order_and_changes_nothing(filled, capfdbinary):
    before = {path.name: path.read_bytes() for path in filled.iterdir()}
    assert main(["journal", "replay", str(filled)]) == ExitCode.OK
    written = [int(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert written == [number for number in range(1, 70) if number not in {1, 2, 40}]
    some = ["--all", "--after", "38", "--limit", "3", "--json"]
    assert main(["journal", "replay", str(filled), *some]) == ExitCode.OK
    found = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [int(base64.b64decode(each["payload"])) for each in found] == [39, 40, 41]
    assert {path.name: path.read_bytes() for path in filled.iterdir()} == before


def test_truncate_gives_up_the_oldest_only_when_really_meant(filled, capfd):
    truncate = ["journal", "truncate", str(filled)]
    assert main([*truncate, "--to", "62"]) == ExitCode.USAGE
    assert "give --yes" in capfd.readouterr().err
    assert main([*truncate, "--yes"]) == ExitCode.USAGE
    capfd.readouterr()
    assert main([*truncate, "--to", "62", "--yes", "--json"]) == ExitCode.OK
    assert objects(capfd) == [{"given_up": 59, "left": 7, "files_deleted": 0}]
    assert main([*truncate, "--all", "--yes"]) == ExitCode.OK
    with Journal(filled) as journal:
        assert (journal.depth, journal.next_id) == (0, 70)


def test_a_truncation_keeps_what_it_has_to_set_aside_itself(filled, capfd):
    known = filled / "00000000000000000000-00000000.seg.bad"
    known.write_bytes(b"damaged long ago")
    flip(segments(filled)[0], 9)
    truncate = ["journal", "truncate", str(filled), "--all", "--bad", "--yes", "--json"]
    assert main(truncate) == ExitCode.OK
    assert [one["files_deleted"] for one in objects(capfd)] == [1]
    assert not known.exists()
    assert len([*filled.glob("*.bad")]) == 1


def test_a_disk_that_is_full_is_that_of_the_output_and_not_of_the_journal(
    filled, capfd, monkeypatch
):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        after = str(2**31)  # which a busy producer reaches in an hour
        assert main(["journal", "replay", str(filled), "--after", after]) == ExitCode.OK
        assert main(["journal", "replay", str(filled)]) == ExitCode.FAILED
    said = "error: standard output cannot be written: [Errno 28] No space left on device\n"
    assert capfd.readouterr().err.endswith(said)


def test_send_stops_at_what_is_refused_only_when_all_in_front_of_it_is_sent(filled):
    """It advises to discard everything up to that record."""
    outcomes = [
        BatchOutcome(again=(0,), refused={1: ValueError("not this"), 3: ValueError("nor this")}),
        BatchOutcome(refused={1: ValueError("not this"), 2: ValueError("nor this")}),
    ]
    sent: list[list[Any]] = []

    class Refusing:
        def send(self, batch: list[Any], timeout_s: float) -> BatchOutcome:
            sent.append(batch)
            return outcomes.pop(0)

    with Journal(filled) as journal, Stopping() as stopping:
        with pytest.raises(ConfigurationError, match=r"id=4 .*not this.*truncate --to 4"):
            JournalSending(journal, Refusing(), int, 60.0, stopping).run()
        assert [one.id for one in journal.read(max_items=3)] == [4, 6]
    assert sent[1] == [3, 4, 6]
