"""What a review of the whole program found about order and time, and what stands until the named
issue mends it: as it is today, so that whoever mends it finds the scenario here and turns it round.

Of elections: ``test_election_promises`` (issue 28). Of a queue's values:
``test_queues.test_known_a_late_acknowledgement_of_a_value_that_is_not_the_last_is_not_refused``.
"""

from __future__ import annotations

import json
from typing import Any

from leaderq.kafka import skip
from leaderq.kafka.clients.producer import Message as KafkaMessage
from leaderq.kafka.clients.producer import ProducerSettings
from leaderq.testing.simulation.kafka.producer import SimulatedProducer
from simulation.draining import SOURCE, Drain
from simulation.scenarios import FOLDER, Scene, scene

# -- Kafka: issue 29 -------------------------------------------------------------------------------


@scene(3)
def test_known_issue_29_a_handler_that_exits_fails_every_term_whatever_the_policy(s: Scene) -> None:
    """kafka.md B3: ``SystemExit`` is neither the record's fault nor a death."""

    def rule(_career: Any, record: Any) -> None:
        if record.offset == 12:
            raise SystemExit(1)

    with Drain(s, rule=rule, on_error=skip()) as drain:
        drain.workers("a", cool_off_s=1.0)
        s.run(20.0)
        assert len(drain.terms()) >= 3
        assert max(one.offset for one in drain.handled) < 15


@scene(3)
def test_known_issue_29_lag_is_0_while_anothers_open_transaction_blocks_the_partition(
    s: Scene,
) -> None:
    """kafka.md A6: the end is the last stable offset."""
    with Drain(s, records=5) as drain:
        drain.workers("b")
        (a,) = s.guests("a")

        def hang() -> None:
            settings = ProducerSettings(drain.kafka.address, transactional_id="other")
            other = SimulatedProducer(drain.kafka, settings)
            other.open()
            other.fence(10.0)
            other.begin()
            other.produce(KafkaMessage(SOURCE, b"open", partition=0))
            s.world.park(1.0)

        a.do(hang)
        drain.feed(20)
        s.run(20.0)
        assert len(drain.handled) == 5
        progress = json.loads(s.cluster.znodes()[f"{FOLDER}/progress"])
        assert progress["partitions"]["orders-0"]["lag"] == 0
