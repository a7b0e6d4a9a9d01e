"""confluent-kafka behind the drain contract."""

from __future__ import annotations

import pytest
from drain_contract import DrainContract, Make, commit

from leaderq.errors import KafkaFenced

pytest.importorskip("confluent_kafka", reason="the extra leaderq[confluent] is not installed", exc_type=ImportError)

from leaderq.kafka.clients.confluent_consumer import ConfluentConsumer


class TestConfluentDrain(DrainContract):
    """The contract, on confluent-kafka."""

    factory = ConfluentConsumer

    def test_a_fenced_member_is_told_by_its_heartbeat_for_ever(self, make_drain: Make) -> None:
        first = self.join(make_drain())
        self.join(make_drain())
        with pytest.raises(KafkaFenced):
            for _ in range(40):
                assert first.poll(0.5, 10) == {}
        for act in (lambda: first.poll(0.0, 10), lambda: first.attend(0.1), lambda: commit(first, {})):
            with pytest.raises(KafkaFenced):
                act()
