"""``leaderq status`` beside a leader that really drains, held back to a pace so that there is a lag
to be seen.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leaderq.kafka.topics import committed, create_topics, end_offsets, produce
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess

COUNT = 8000  # more than are drained while a slow machine starts a command or two
DRAIN = """
from leaderq import KafkaLeaderCareer

class SlowDrain(KafkaLeaderCareer):
    topics = {topic!r}
    group = {topic!r}
    max_records = 20
    max_records_per_s = 40

    def handle(self, records, term):
        pass
"""


@pytest.fixture
def topic(kafka_broker: Any, topic_name: str) -> str:
    create_topics(kafka_broker.address, {topic_name: 2})
    produce(kafka_broker.address, topic_name, ((b"%d" % n, b"x") for n in range(COUNT)))
    return topic_name


def test_a_lag_is_seen_to_shrink_at_the_pace_the_career_allows(
    shell: Any,
    environment: Any,
    folder: Path,
    root: str,
    topic: str,
    zookeeper_server: Any,
    kafka_broker: Any,
) -> None:
    (folder / "slow.py").write_text(DRAIN.format(topic=topic))
    given = {"zookeeper": zookeeper_server.address, "root": root, "career": "slow-drain"}

    def drain() -> dict[str, Any]:
        (view,) = map(json.loads, shell("status", "--json", **given).stdout.splitlines())
        return view["drain"] or {}

    with CandidateProcess(
        "slow:SlowDrain",
        id="a",
        zookeeper=zookeeper_server.address,
        kafka=kafka_broker.address,
        cwd=folder,
        arguments=["--root", root],
        environment=environment(),
    ):
        first = eventually(
            lambda: (seen := drain()).get("rate_per_s") and seen, timeout_s=90, interval_s=0.5
        )
        assert (first["fresh"], first["term"], first["group"]) == (True, 1, topic)
        assert set(first["partitions"]) == {f"{topic}-0", f"{topic}-1"}
        assert 0 < first["lag"] < COUNT
        assert first["catch_up_s"] > 0
        assert sum(row["end"] for row in first["partitions"].values()) == COUNT
        later = eventually(
            lambda: (seen := drain())["lag"] < first["lag"] and seen, timeout_s=90, interval_s=0.5
        )
        # Never far beyond the limit: a second's worth at first, and 40 in each second between the
        # two reports, whose time may be some seconds later than what they say.
        assert first["lag"] - later["lag"] <= 40 * (later["at"] - first["at"] + 5) + 40 + 20
        saved = sum(committed(kafka_broker.address, topic, topic).values())
        assert saved >= COUNT - later["lag"]
        table = shell("status", **given).stdout.splitlines()
        assert table[0].split()[-3:] == ["LAG", "RATE", "CATCH-UP"]
        assert "/s" in table[1]
        rows = [
            line.split()
            for line in shell("status", "--partitions", **given).stdout.splitlines()[1:]
        ]
        assert [row[1] for row in rows] == [f"{topic}-0", f"{topic}-1"]
        ends = end_offsets(kafka_broker.address, topic)
        assert [int(row[3]) for row in rows] == [ends[0], ends[1]]
    (view,) = map(json.loads, shell("status", "--json", **given).stdout.splitlines())
    assert view["leader"] is None
    assert view["drain"]["fresh"] is False
