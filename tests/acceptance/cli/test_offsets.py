"""``leaderq offsets``: shown, set, moved between stores; refused while a leader reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from leaderq.kafka.topics import create_topics, produce
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess

CAREERS = """
from pathlib import Path
from leaderq.kafka import KafkaLeaderCareer

class Reading(KafkaLeaderCareer):
    name = "reading"
    topics = "{topic}"
    offsets = "kafka"

    def handle_record(self, record, term):
        with Path("{handled}").open("a") as out:
            print(record.offset, file=out)

class Transacting(Reading):
    offsets = "transaction"

class Keeping(Reading):
    name = "keeping"
    offsets = "zookeeper"
"""
COUNT = 6


class Offsets:
    module = "reading"

    def __init__(self, shell: Any, folder: Any, given: dict[str, str], kafka: str) -> None:
        self._given, self.kafka, self.folder, self._shell = given, kafka, folder, shell
        self.topic, self._handled = f"offsets-{given['root'][3:]}", folder / "handled"
        create_topics(self.kafka, {self.topic: 1})
        produce(self.kafka, self.topic, [(b"k", b"v")] * COUNT)
        text = CAREERS.format(topic=self.topic, handled=self._handled)
        (folder / f"{self.module}.py").write_text(text)

    def handled(self) -> list[int]:
        return [int(one) for one in self._handled.read_text().split()]

    def __call__(self, *arguments: str, **more: str) -> Any:
        return self._shell(*arguments, kafka=self.kafka, **self._given, **more)

    def shown(self, career: str) -> int | None:
        (row,) = self("offsets", "show", f"{self.module}:{career}", "--json").rows
        assert (row["topic"], row["first"]) == (self.topic, 0)
        offset: int | None = row["offset"]
        return offset

    def set(self, career: str, *arguments: str, verb: str = "set") -> Any:
        return self("offsets", verb, f"{self.module}:{career}", *arguments)


@pytest.fixture
def offsets(shell, folder, given, kafka_broker) -> Offsets:
    return Offsets(shell, folder, given, kafka_broker.address)


@pytest.fixture
def lead(offsets, start) -> Callable[[str], CandidateProcess]:
    return lambda career: start(
        f"{offsets.module}:{career}", kafka=offsets.kafka, cwd=offsets.folder
    )


def test_a_paused_career_reads_on_where_an_operator_has_set_it(offsets, lead):
    career = "Transacting"
    lead(career)
    eventually(
        lambda: offsets.shown(career) is not None and offsets.handled() == list(range(COUNT))
    )
    at = ["--at", f"{offsets.topic}-0=2"]
    for really in ([], ["--yes"]):
        refused = offsets.set(career, *at, *really)
        assert (refused.code, "leaderq pause" in refused.err) == (1, True)
    (by_name,) = offsets("offsets", "show", "reading", "--json").rows  # as its candidate has told
    assert by_name["offset"] == offsets.shown(career)
    named = {"career": "reading"}
    assert offsets("pause", **named).code == 0
    dry = offsets.set(career, *at)
    assert (dry.code, "give --yes" in dry.err) == (0, True)
    done = offsets.set(career, *at, "--yes")
    assert done.code == 0, done.err
    assert offsets("resume", **named).code == 0
    eventually(lambda: offsets.handled() == [*range(COUNT), *range(2, COUNT)])


def test_offsets_in_zookeeper_are_set_while_nobody_leads_and_moved_from_store_to_store(
    offsets, lead, tmp_path
):
    assert offsets.set("Keeping", "--at", f"{offsets.topic}-0=4", "--yes").code == 0
    assert offsets.shown("Keeping") == 4
    said = offsets("offsets", "export", f"{offsets.module}:Keeping").out
    (tmp_path / "offsets.jsonl").write_text(f"\ufeff{said}")  # an editor has saved it
    moved = offsets.set("Reading", str(tmp_path / "offsets.jsonl"), "--yes", verb="import")
    assert moved.code == 0, moved.err
    assert offsets.shown("Reading") == 4
    leader = lead("Keeping")
    eventually(lambda: offsets.handled() == [4, 5])
    offsets("pause", career="keeping")
    for really in ([], ["--yes"]):
        refused = offsets.set("Keeping", "--to", "earliest", *really)
        assert (refused.code, "stop all candidates" in refused.err) == (1, True)
    leader.stop()
    assert offsets.set("Keeping", "--to", "earliest", "--yes").code == 0
    assert offsets.shown("Keeping") == 0


def test_offsets_are_set_to_a_time_and_none_that_cannot_be(offsets):
    now = datetime.now(timezone.utc).isoformat()
    for when, at in (("2001-01-01", 0), (now, COUNT)):
        done = offsets.set("Reading", when, "--yes", verb="to-time")
        assert (done.code, offsets.shown("Reading")) == (0, at), done.err
    for wrong, why in (
        (["--at", f"{offsets.topic}-0=99"], "no record is"),
        (["--at", "nowhere-0=1"], "reads no partition"),
        ([], "say where"),
    ):
        offsets.set("Reading", *wrong, "--yes").assert_refused(why)


def test_a_file_that_no_export_has_written_is_refused_with_its_line(offsets, tmp_path):
    row = {"topic": offsets.topic, "partition": 0, "offset": 1}
    wrong = tmp_path / "wrong.jsonl"
    fraction = json.dumps({**row, "offset": 0.7}).encode()
    for data in (fraction, b"[" * 100_000, b"\x7fELF\xff\xfe"):
        wrong.write_bytes(json.dumps(row).encode() + b"\n" + data)
        refused = offsets.set("Reading", str(wrong), "--yes", verb="import")
        refused.assert_refused("line 2 is", "export did not write")
