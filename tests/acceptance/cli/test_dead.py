"""What an operator types about dead letters; also when it is killed or interrupted midway."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from letters import Letters

from leaderq.kafka.topics import committed, create_topics, produce
from leaderq.testing import eventually
from leaderq.testing.waiting import patience

COUNT = 40


@pytest.fixture
def letters(kafka_broker, topic_name) -> Letters:
    return Letters(kafka_broker.address, topic_name, COUNT)


@pytest.fixture
def settings(letters, given) -> dict[str, str]:
    return {"kafka": letters.address, **given, "career": letters.career}


@pytest.fixture
def dead(shell, settings) -> Callable[..., Any]:
    return lambda *arguments: shell("dead", *arguments, **settings)


def test_letters_are_listed_filtered_and_limited(dead, letters):
    _, first, *more = dead("ls", "--limit", "3").lines
    assert len(more) == 2
    assert f"{letters.origin}-0@0" in first
    assert first.endswith("3         -         KeyError: 'iban'")
    found = dead("ls", "--json").rows
    assert [row["offset"] for row in found] == list(range(COUNT))
    assert found[1]["origin"] == {"topic": letters.origin, "partition": 0, "offset": 1}
    found = dead("ls", "--error", "BANK", "--json").rows
    assert {row["error"] for row in found} == {"TimeoutError"}
    assert "no dead letters of that kind" in dead("ls", "--origin", "elsewhere").err


def test_a_dry_run_says_what_a_replay_then_does(dead, letters):
    dead("replay").assert_refused("--dry-run")
    dry = dead("replay", "--dry-run", "--error", "timeout", "--json")
    assert [row["key"] for row in dry.rows] == [f"k{n}" for n in range(1, COUNT, 2)]
    assert dry.rows[0]["to"] == f"{letters.origin}-0"
    assert f"{COUNT // 2} would be replayed" in dry.err
    assert letters.sent() == 0
    done = dead("replay", "--error", "timeout", "--yes")
    assert done.code == 0, done.err
    assert done.err.startswith(f"{COUNT // 2} replayed; 0 skipped")
    pending = [row["offset"] for row in dead("ls", "--pending", "--json").rows]
    assert pending == [*range(0, COUNT, 2)]
    assert [row["replayed"] for row in dead("ls", "--json").rows] == [False, True] * (COUNT // 2)
    assert dead("replay", "--yes", "--rate", "0").err.startswith(f"{COUNT // 2} replayed")
    done = "0 replayed; 0 skipped, not written by leaderq; 0 remain\n"
    assert dead("replay", "--yes") == (0, "", done)
    assert letters.progress_noted() == COUNT


@pytest.mark.parametrize(("told", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 130)])
def test_a_replay_that_is_stopped_midway_is_begun_again_and_sends_each_letter_once(
    dead, letters, begin, settings, told, code
):
    pipe = {"stderr": subprocess.PIPE, "text": True}
    process = begin("dead", "replay", "--yes", "--rate", "4", settings=settings, **pipe)
    eventually(lambda: letters.progress_noted() >= 2)
    process.send_signal(told)
    _, err = process.communicate(timeout=60 * patience())
    assert process.returncode == code, err
    assert "Traceback" not in err
    done = letters.progress_noted()
    assert 2 <= done < COUNT
    assert dead("replay", "--yes", "--rate", "0").err.startswith(f"{COUNT - done} replayed")
    assert letters.progress_noted() == COUNT


def test_what_an_operator_gets_wrong_is_said_in_one_line(dead):
    for words, code, said in (
        ("show x", 2, "'x' is not PARTITION:OFFSET"),
        ("show 7:0", 1, "it holds (partition: offsets) 0: 0 to 39"),
        ("ls --topic nowhere", 2, "no topic 'nowhere'"),
        ("ls --career caf\u00e9", 2, "'caf\u00e9-dead' cannot be the name of a topic"),
    ):
        dead(*words.split()).assert_refused(said, code=code)


STUCK = """
from leaderq.kafka import KafkaLeaderCareer, retry

class Stuck(KafkaLeaderCareer):
    topics = "{topic}"
    on_error = retry(9, 0.1, except_=KeyError)

    def handle_record(self, record, term):
        if record.offset == 1:
            raise KeyError("an account that is not there yet")
"""


def test_a_record_that_holds_the_work_up_is_buried_and_history_says_who_asked(
    shell, folder, start, given, kafka_broker, topic_name
):
    topic = topic_name
    create_topics(kafka_broker.address, {topic: 1})
    produce(kafka_broker.address, topic, [(b"k%d" % n, b"v") for n in range(3)])
    (folder / "stuck.py").write_text(STUCK.format(topic=topic))
    leader = start("stuck:Stuck", kafka=kafka_broker.address, cwd=folder)
    held = eventually(
        lambda: next((str(line) for line in leader.lines if "held up" in str(line)), "")
    )
    assert f"leaderq dead bury --career stuck --at {topic}-0@1 --yes" in held
    assert "key=b'k1'" in held
    at = ["--career", "stuck", "--at", f"{topic}-0@1"]
    shell("dead", "bury", *at, **given).assert_refused("give --yes")
    buried = shell("dead", "bury", *at, "--yes", **given)
    assert buried.code == 0, buried.err
    eventually(lambda: committed(kafka_broker.address, "stuck", topic) == {0: 3})
    leader.stop()
    late = shell("dead", "bury", *at, "--yes", "--timeout-s", "0.5", **given)
    assert (late.code, "is taken back" in late.err) == (1, True)
    said = shell("history", "--career", "stuck", **given)
    (line,) = (one for one in (said.err + said.out).splitlines() if "was let pass" in one)
    assert line.startswith(f"{topic}-0@1 was let pass in term 1, ")
