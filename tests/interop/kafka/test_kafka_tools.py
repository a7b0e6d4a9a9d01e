"""Kafka's own console tools read what leaderq has left: offsets, lag, dead letters."""

from __future__ import annotations

import subprocess
from pathlib import Path

from leaderq.kafka.topics import create_topics, end_offsets, produce
from leaderq.testing import eventually
from leaderq.testing.jars import class_path
from leaderq.testing.java import find_java

CAREERS = Path(__file__).parent / "careers"


def tool(main: str, *arguments: str) -> str:
    """What a console tool of Kafka says."""
    java = [str(find_java().program), "-XX:TieredStopAtLevel=1", "-cp", class_path("kafka")]
    command = [*java, main, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def groups(address: str, group: str) -> dict[int, dict[str, str]]:
    """The rows of kafka-consumer-groups --describe, by partition."""
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    told = tool(main, "--bootstrap-server", address, "--describe", "--group", group)
    lines = [line.split() for line in told.splitlines()]
    heading = next(words for words in lines if words[:1] == ["GROUP"])
    rows = [dict(zip(heading, words, strict=False)) for words in lines if words[:1] == [group]]
    return {int(row["PARTITION"]): row for row in rows}


def test_the_console_tools_show_the_leaders_offsets_no_lag_and_the_dead_letter(
    start, kafka_broker, topic_name
):
    address, career = kafka_broker.address, f"{topic_name}-career"
    create_topics(address, {topic_name: 2, f"{career}-dead": 1})
    values = [b"%d" % n for n in range(200)]
    values.insert(77, b"poison")
    rows = [(b"k%d" % (n % 7), value, [("h", b"x")]) for n, value in enumerate(values)]
    produce(address, topic_name, rows)
    environment = {"TOPIC": topic_name, "OFFSETS": "zookeeper"}
    more = {"arguments": ["--career", career], "environment": environment}
    start("fussy:Fussy", kafka=address, cwd=CAREERS, **more)
    ends = end_offsets(address, topic_name)
    rows: dict[int, dict[str, str]] = {}

    def caught_up() -> bool:
        rows.update(groups(address, career))
        return {number: int(row["CURRENT-OFFSET"]) for number, row in rows.items()} == ends

    eventually(caught_up, timeout_s=90)
    assert {row["LAG"] for row in rows.values()} == {"0"}
    told = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", address, "--topic", f"{career}-dead"),
        *["--from-beginning", "--max-messages", "1", "--timeout-ms", "60000"],
        *["--isolation-level", "read_committed", "--formatter-property", "print.headers=true"],
        *["--formatter-property", "print.key=true"],
    )
    assert told.rstrip().endswith("poison")
    for said in (f"leaderq-dead-topic:{topic_name}", "this is poison", "h:x"):
        assert said in told
