"""What an operator types about dead letters: ls, show, replay; also when it is killed or
interrupted midway.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
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
    """Run ``leaderq dead``."""
    return lambda *arguments: shell("dead", *arguments, **settings)


def rows(done: Any) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_letters_are_listed_filtered_and_limited(dead, letters):
    table = dead("ls", "--limit", "3").stdout.splitlines()
    assert " ".join(table[0].split()) == "PARTITION OFFSET TIME ORIGIN ATTEMPTS REPLAYED ERROR"
    assert len(table) == 4
    assert table[1].split()[:2] == ["0", "0"]
    assert f"{letters.origin}-0@0" in table[1]
    assert table[1].endswith("3         -         KeyError: 'iban'")
    found = rows(dead("ls", "--json"))
    assert [row["offset"] for row in found] == list(range(COUNT))
    assert found[1]["origin"] == {"topic": letters.origin, "partition": 0, "offset": 1}
    assert {row["error"] for row in rows(dead("ls", "--error", "BANK", "--json"))} == {
        "TimeoutError"
    }
    none = dead("ls", "--origin", "elsewhere")
    assert (none.returncode, none.stdout) == (0, "")
    assert none.stderr == f"no dead letters of that kind on topic {letters.topic!r}\n"


def test_a_dry_run_says_what_a_replay_then_does(dead, letters):
    refused = dead("replay")
    assert refused.returncode == 2
    assert "--dry-run" in refused.stderr
    dry = dead("replay", "--dry-run", "--error", "timeout", "--json")
    assert [row["key"] for row in rows(dry)] == [f"k{n}" for n in range(1, COUNT, 2)]
    assert rows(dry)[0]["to"] == f"{letters.origin}-0"
    assert dry.stderr == (
        f"{COUNT // 2} would be replayed; 0 skipped, not written by leaderq; "
        f"{COUNT // 2} remain, {COUNT // 2} of them not selected\n"
    )
    assert letters.sent() == 0
    done = dead("replay", "--error", "timeout", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"{COUNT // 2} replayed; 0 skipped")
    assert [row["offset"] for row in rows(dead("ls", "--pending", "--json"))] == list(
        range(0, COUNT, 2)
    )
    assert [row["replayed"] for row in rows(dead("ls", "--json"))] == [False, True] * (COUNT // 2)
    assert dead("replay", "--yes", "--rate", "0").stderr.startswith(f"{COUNT // 2} replayed")
    again = dead("replay", "--yes")
    assert (again.returncode, again.stderr) == (
        0,
        "0 replayed; 0 skipped, not written by leaderq; 0 remain\n",
    )
    assert letters.progress_noted() == COUNT
    assert (
        dead("ls", "--pending").stderr
        == f"no dead letters of that kind on topic {letters.topic!r}\n"
    )


@pytest.mark.parametrize(("told", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 130)])
def test_a_replay_that_is_stopped_midway_is_begun_again_and_sends_each_letter_once(
    dead, letters, folder, environment, settings, told, code
):
    command = [sys.executable, "-m", "leaderq", "dead", "replay", "--yes", "--rate", "4"]
    with subprocess.Popen(
        command, cwd=folder, env=environment(**settings), stderr=subprocess.PIPE, text=True
    ) as process:
        eventually(lambda: letters.progress_noted() >= 2)
        process.send_signal(told)
        _, err = process.communicate(timeout=60 * patience())
    assert process.returncode == code, err
    assert "Traceback" not in err
    done = letters.progress_noted()
    assert 2 <= done < COUNT
    if told is not signal.SIGKILL:
        said = int(err.split()[0])  # one less, if the answer to a commit was not waited for
        assert said in (done - 1, done)
        assert f"up to {COUNT - said} remain" in err
    assert dead("replay", "--yes", "--rate", "0").stderr.startswith(f"{COUNT - done} replayed")
    assert letters.progress_noted() == COUNT


def test_what_an_operator_gets_wrong_is_said_in_one_line(dead):
    mistakes: list[tuple[list[str], int, str]] = [
        (["show", "x"], 2, "'x' is not PARTITION:OFFSET"),
        (["show", "0:999"], 1, "no letter at offset 999 of partition 0"),
        (["show", "7:0"], 1, "it holds (partition: offsets) 0: 0 to 39"),
        (["ls", "--topic", "nowhere"], 2, "no topic 'nowhere'"),
        (["ls", "--topic", "n\u00f3where"], 2, "'n\u00f3where' cannot be the name of a topic"),
        (["ls", "--career", "caf\u00e9"], 2, "'caf\u00e9-dead' cannot be the name of a topic"),
        (["replay", "--letter", "1", "--yes"], 2, "'1' is not PARTITION:OFFSET"),
        (["lst"], 2, "did you mean 'ls'?"),
    ]
    for arguments, code, said in mistakes:
        done = dead(*arguments)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert said in done.stderr
        assert done.stderr.startswith("leaderq: error: ")
        assert done.stderr.count("\n") == 1


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
        lambda: next((str(line) for line in leader.lines if "held up" in str(line)), ""),
        message="the work is held up",
    )
    assert f"leaderq dead bury --career stuck --at {topic}-0@1 --yes" in held
    assert "key=b'k1'" in held
    at = ["--career", "stuck", "--at", f"{topic}-0@1"]
    refused = shell("dead", "bury", *at, **given)
    assert (refused.returncode, "give --yes" in refused.stderr) == (2, True)
    buried = shell("dead", "bury", *at, "--yes", **given)
    assert buried.returncode == 0, buried.stderr
    eventually(
        lambda: committed(kafka_broker.address, "stuck", topic) == {0: 3},
        message="all is committed",
    )
    leader.stop()
    late = shell("dead", "bury", *at, "--yes", "--timeout-s", "0.5", **given)
    assert (late.returncode, "is taken back" in late.stderr) == (1, True)
    said = shell("history", "--career", "stuck", **given)
    (line,) = (one for one in (said.stderr + said.stdout).splitlines() if "was let pass" in one)
    assert line.startswith(f"{topic}-0@1 was let pass in term 1, ")
