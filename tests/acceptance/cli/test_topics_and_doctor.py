"""``leaderq topics``, and what ``leaderq doctor --career`` finds before and after."""

from __future__ import annotations

import uuid

import pytest

from leaderq.election.layout import Layout

CAREER = """
from leaderq.kafka import KafkaLeaderCareer, dead_letter

class Settling(KafkaLeaderCareer):
    topics = "{topic}"
    on_error = dead_letter("{topic}-dead")
    produces = "{topic}-out"

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


@pytest.fixture
def findings(shell):
    def found(*arguments, code=0, **settings):
        found = shell("doctor", *arguments, "--json", **settings).objects(code=code)
        return {each["check"]: (each["verdict"], each["detail"]) for each in found}

    return found


def test_doctor_says_what_a_career_lacks_and_that_it_lacks_nothing_when_that_is_there(
    shell, findings, topic, given
):
    found = findings("--career", "settling:Settling", code=1, **given)
    create = f"create it: leaderq topics create {topic}"
    assert found[f"topic {topic}"] == ("failed", f"is not there; {create}")
    made = ("ok", "for dead letters; it is made when the career is run")
    assert found[f"topic {topic}-dead"] == made
    verdict, detail = found[f"topic {topic}-out"]
    assert (verdict, f"{create}-out" in detail) == ("failed", True)
    options = ("--partitions", "3", "--topic-config", "retention.ms=86400000")
    assert shell("topics", "create", topic, *options, **given) == (0, "", f"{topic} is created\n")
    run = shell("run", "settling:Settling", **given)
    assert run.code != 0
    assert f"there is no topic '{topic}-out' on Kafka" in run.err
    assert "Traceback" not in run.err
    assert shell("topics", "create", f"{topic}-out", **given).code == 0
    again = shell("topics", "create", topic, f"{topic}-dead", **given)
    assert again.err == f"{topic} is there already, and left as it is\n{topic}-dead is created\n"

    found = findings("--career", "settling:Settling", **given)
    reads = f"settling reads {topic} as group 'settling', offsets in 'kafka'"
    assert found["career"] == ("ok", reads)
    assert found[f"topic {topic}"][1].startswith("3 partitions, 1 of 1 replicas in sync")
    assert found[f"topic {topic}-out"][1].startswith("1 partitions")
    assert found["group"] == ("ok", "'settling' may be used; it has committed nothing yet")


def test_doctor_knows_the_class_and_the_career_whose_name_was_nearly_given(
    findings, topic, given, session, znode_root
):
    found = findings("--career", "settling:Setling", code=2, **given)
    assert "did you mean 'Settling'?" in found["configuration"][1]
    session.ensure_path(Layout(znode_root, "billing").term)
    found = findings("--career", "biling", code=2, **given, root=znode_root)
    assert "did you mean 'billing'?" in found["configuration"][1]


def test_doctor_asks_kafka_for_a_career_without_topics_only_if_it_is_told_where(
    findings, zookeeper_server
):
    given = {"zookeeper": zookeeper_server.address}
    assert "kafka" not in findings("--career", "billing:AdBilling", **given)
    nobody = given | {"kafka": "127.0.0.1:1", "connect_timeout_s": "1"}
    findings("--career", "billing:AdBilling", code=3, **nobody)


def test_records_that_are_put_are_shown_and_counted(shell, topic, given):
    """A new user's first ten minutes (new-user.md 7)."""

    def topics(verb, *arguments, **more):
        return shell("topics", verb, *arguments, **more, **given)

    topics("put", topic, "a").assert_refused(f"no topic '{topic}'")
    topics("create", topic, "--partitions", "9" * 30).assert_refused("is not in the range")
    made = topics("create", topic, "--partitions", "3")
    assert "is created" in made.err  # nothing was made before
    assert topics("put", topic, "--key", "k", "a", "b") == (0, "", f"2 sent to {topic}\n")
    wrong = topics("put", topic, "--keyed", stdin=b"k\tc\nno tab\n")
    wrong.assert_refused("line 2 has no tab")
    typed = "\ufeffk\tc\nk\t\n".encode()  # the mark is no part of the key
    assert topics("put", topic, "--keyed", stdin=typed).code == 0
    shown = topics("show", topic, "--last", "2", "--json").rows
    found = [(one["offset"], one["key"], one["value"]) for one in shown]
    assert found == [(2, "k", "c"), (3, "k", "")]
    assert topics("put", topic, "--key", "\udcff", "\udcfe").code == 0
    assert topics("show", topic, "--last", "6", "--json").rows[-1]["key"] == {"base64": "/w=="}
    assert [topic, "3", "5", "1"] in [line.split() for line in topics("ls").lines]


def test_doctor_says_what_the_servers_tick_is_and_refuses_one_that_is_set_too_low(
    findings, zookeeper_server
):
    given = {"zookeeper": zookeeper_server.address}
    found = findings("--quick", **given)
    assert found["ensemble"] == ("ok", f"{zookeeper_server.address} is alone")
    assert found["tick"][1].startswith("0.5 s; T is 10 s, 20 ticks; minSessionTimeout is 1 s;")
    verdict, detail = findings("--quick", "--tick-s", "0.4", code=2, **given)["tick"]
    assert verdict == "failed"
    assert "set tick_s = 0.5" in detail
