"""``leaderq topics create``, and what ``leaderq doctor --career`` finds at a career before and
after.
"""

from __future__ import annotations

import io
import json
import sys
import uuid

import pytest

CAREER = """
from leaderq import LeaderCareer
from leaderq.kafka import KafkaLeaderCareer, dead_letter

class Settling(KafkaLeaderCareer):
    topics = "{topic}"
    on_error = dead_letter("{topic}-dead")
    produces = "{topic}-out"

    def handle(self, records, term):
        pass

class Broken(KafkaLeaderCareer):
    topics = "{topic}"
    delivery = "exactly_once"

    def handle(self, records, term):
        pass
"""


@pytest.fixture
def topic(folder):
    name = f"clicks-{uuid.uuid4().hex[:8]}"
    (folder / "settling.py").write_text(CAREER.format(topic=name))
    return name


@pytest.fixture
def given(zookeeper_server, kafka_broker):
    return {"zookeeper": zookeeper_server.address, "kafka": kafka_broker.address}


def findings(done):
    return {
        each["check"]: (each["verdict"], each["detail"])
        for each in map(json.loads, done.stdout.splitlines())
    }


def test_doctor_says_what_a_career_lacks_and_that_it_lacks_nothing_when_that_is_there(
    shell, topic, given
):
    done = shell("doctor", "--career", "settling:Settling", "--json", **given)
    found = findings(done)
    assert done.returncode == 1
    assert found[f"topic {topic}"] == (
        "failed",
        f"is not there; create it: leaderq topics create {topic}",
    )
    assert found[f"topic {topic}-dead"] == (
        "ok",
        "for dead letters; it is made when the career is run",
    )

    assert found[f"topic {topic}-out"][0] == "failed"
    assert "leaderq topics create" in found[f"topic {topic}-out"][1]

    made = shell(
        "topics",
        "create",
        topic,
        "--partitions",
        "3",
        "--topic-config",
        "retention.ms=86400000",
        **given,
    )
    assert (made.returncode, made.stdout, made.stderr) == (0, "", f"{topic} is created\n")
    run = shell("run", "settling:Settling", **given)
    assert run.returncode != 0
    assert f"there is no topic '{topic}-out' on Kafka" in run.stderr
    assert "Traceback" not in run.stderr
    assert shell("topics", "create", f"{topic}-out", **given).returncode == 0
    again = shell("topics", "create", topic, f"{topic}-dead", **given)
    assert again.stderr == f"{topic} is there already, and left as it is\n{topic}-dead is created\n"

    done = shell("doctor", "--career", "settling:Settling", "--json", **given)
    found = findings(done)
    assert done.returncode == 0, done.stdout
    assert found["career"] == (
        "ok",
        f"settling reads {topic} as group 'settling', offsets in 'kafka'",
    )
    assert found[f"topic {topic}"][1].startswith("3 partitions, 1 of 1 replicas in sync")
    assert found[f"topic {topic}-out"][1].startswith("1 partitions")
    assert found["group"] == ("ok", "'settling' may be used; it has committed nothing yet")


def test_doctor_tells_all_that_is_wrong_with_a_career_itself(shell, topic, given):
    done = shell("doctor", "--career", "settling:Broken", "--json", **given)
    assert done.returncode == 2
    assert "contradicts its offsets" in findings(done)["career"][1]
    done = shell("doctor", "--career", "settling:Setling", "--json", **given)
    assert done.returncode == 2
    assert "did you mean 'Settling'?" in findings(done)["configuration"][1]


def test_doctor_knows_the_career_whose_name_was_nearly_given(shell, folder, given):
    name = f"billing-{uuid.uuid4().hex[:6]}"
    asked = given | {"root": f"/{name}-root"}
    assert shell("lead", "--career", name, "--", "true", **asked).returncode == 0
    done = shell("doctor", "--career", name.replace("ll", "l"), "--json", **asked)
    assert done.returncode == 2
    assert f"did you mean '{name}'?" in findings(done)["configuration"][1]


def test_doctor_asks_kafka_for_a_career_without_topics_only_if_it_is_told_where(
    shell, folder, zookeeper_server
):
    """A new user has no Kafka."""
    plain = "from leaderq import LeaderCareer\n\n\nclass Plain(LeaderCareer):\n"
    (folder / "plain.py").write_text(f"{plain}    def execute(self, term): ...\n")
    given = {"zookeeper": zookeeper_server.address}
    done = shell("doctor", "--career", "plain:Plain", "--json", **given)
    assert (done.returncode, "kafka" in findings(done)) == (0, False)
    nobody = given | {"kafka": "127.0.0.1:1", "connect_timeout_s": "1"}
    assert shell("doctor", "--career", "plain:Plain", **nobody).returncode == 3


def test_records_that_are_put_are_shown_and_counted(shell, topic, given, monkeypatch):
    """A new user's first ten minutes (new-user.md 7)."""
    missing = shell("topics", "put", topic, "a", **given)
    assert missing.returncode == 2
    assert f"no topic '{topic}'" in missing.stderr
    refused = shell("topics", "create", topic, "--topic-config", "retention", **given)
    assert (refused.returncode, "'retention' is not KEY=VALUE" in refused.stderr) == (2, True)
    for option in ("--partitions", "--replication"):
        refused = shell("topics", "create", topic, option, "9" * 30, **given)
        assert (refused.returncode, "is not in the range" in refused.stderr) == (2, True)
    made = shell("topics", "create", topic, "--partitions", "3", **given)
    assert "is created" in made.stderr  # nothing was made before
    assert "holds no records" in shell("topics", "show", topic, **given).stderr
    done = shell("topics", "put", topic, "--key", "k", "a", "b", **given)
    assert (done.returncode, done.stderr) == (0, f"2 sent to {topic}\n")

    def typed(text: str):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return shell("topics", "put", topic, "--keyed", **given)

    refused = typed("k\tc\nno tab\n")
    assert (refused.returncode, "line 2 has no tab" in refused.stderr) == (2, True)
    assert typed("\ufeffk\tc\nk\t\n").returncode == 0  # the mark is no part of the key
    shown = [
        json.loads(line)
        for line in shell("topics", "show", topic, "--last", "3", "--json", **given).stdout.split(
            "\n"
        )
        if line
    ]
    assert [(one["offset"], one["key"], one["value"]) for one in shown] == [
        (1, "k", "b"),
        (2, "k", "c"),
        (3, "k", ""),
    ]
    assert shell("topics", "put", topic, "--key", "\udcff", "\udcfe", **given).returncode == 0
    bytes_ = shell("topics", "show", topic, "--last", "6", "--json", **given).stdout
    assert json.loads(bytes_.splitlines()[-1])["key"] == {"base64": "/w=="}
    listed = shell("topics", "ls", **given).stdout.splitlines()
    assert [topic, "3", "5", "1"] in [line.split() for line in listed]


def test_doctor_says_what_the_servers_tick_is_and_refuses_one_that_is_set_too_low(
    shell, zookeeper_server
):
    given = {"zookeeper": zookeeper_server.address}
    found = findings(shell("doctor", "--quick", "--json", **given))
    assert found["ensemble"] == ("ok", f"{zookeeper_server.address} is alone")
    assert found["tick"][1].startswith("0.5 s; T is 10 s, 20 ticks; minSessionTimeout is 1 s;")
    done = shell("doctor", "--quick", "--json", "--tick-s", "0.4", **given)
    verdict, detail = findings(done)["tick"]
    assert (done.returncode, verdict) == (2, "failed")
    assert "set tick_s = 0.5" in detail
