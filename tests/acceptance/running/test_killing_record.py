"""A record over which every process dies is found out by its deaths, and set aside."""

from __future__ import annotations

import json
from typing import Any

from leaderq.cli import main
from leaderq.election.layout import Layout
from leaderq.kafka.handling.crash_marks import decode
from leaderq.kafka.topics import create_topics, produce
from leaderq.testing import eventually

DEATHS = 4
"""Two before anybody is careful, then as many as the career's policy says."""


def test_a_record_that_kills_every_leader_is_set_aside_and_the_work_goes_on(
    start, history, zookeeper, zookeeper_server, kafka_broker, znode_root, topic_name, capfd
):
    create_topics(kafka_broker.address, {topic_name: 1, f"{topic_name}-dead": 1})
    values = [b"kill" if n == 13 else b"%d" % n for n in range(40)]
    produce(kafka_broker.address, topic_name, [(b"k", value) for value in values])

    def lead(id: str) -> Any:
        return start(
            "killing:Killed", id=id, kafka=kafka_broker.address, environment={"TOPIC": topic_name}
        )

    for death in range(DEATHS):
        victim = lead(f"victim-{death}")
        victim.wait_for("worker_died", timeout_s=90)
        victim.stop()
    survivor = lead("survivor")
    eventually(lambda: history.lines("handled", value="39"), timeout_s=90)
    survivor.stop()

    handled = [line["value"] for line in history.lines("handled")]
    assert [value.encode() for value in dict.fromkeys(handled)] == [
        value for value in values if value != b"kill"
    ]
    assert {line["together"] for line in history.lines("handled", who="survivor")} >= {1, 10}
    assert decode(zookeeper.get(Layout(znode_root, "killed").attempts)[0], path="").killers

    def dead(*arguments: str) -> Any:
        where = ["--career", "killed", "--topic", f"{topic_name}-dead", "--root", znode_root]
        where += ["--kafka", kafka_broker.address, "--zookeeper", zookeeper_server.address]
        capfd.readouterr()
        assert main(["dead", *arguments, *where, "--json"]) == 0
        (line,) = capfd.readouterr().out.splitlines()
        return json.loads(line)

    letter = dead("ls")
    assert letter["origin"] == {"topic": topic_name, "partition": 0, "offset": 13}
    assert (letter["attempts"], letter["career"]) == (2, "killed")
    assert "ProcessDied" in letter["error"]
    whole = dead("show", "0:0")
    assert (whole["key"], whole["value"]) == ("k", "kill")
