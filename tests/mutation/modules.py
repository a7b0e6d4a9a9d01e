"""The pure modules, without threads, clocks and sockets of their own; and the tests of each."""

from __future__ import annotations


def _tests(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{name}" for name in names)


MODULES: dict[str, tuple[str, ...]] = {
    "leaderq.election.decision": _tests("election"),
    "leaderq.election.tenure": _tests("election"),
    "leaderq.election.layout": _tests("election"),
    "leaderq.term": _tests("test_term.py", "test_term_clock.py"),
    "leaderq.zookeeper.wire": _tests(
        "zookeeper"
    ),
    "leaderq.zookeeper.paths": _tests("zookeeper"),
    "leaderq.zookeeper.watching": _tests("zookeeper"),
    "leaderq.dyno.transitions": _tests("dyno"),
    "leaderq.dyno.ids": _tests("dyno"),
    "leaderq.dyno.index": _tests("dyno"),
    "leaderq.dyno.message": _tests("dyno"),
    "leaderq.dyno.layout": _tests("dyno"),
    "leaderq.queues.wire.names": _tests(
        "queues/test_names.py", "queues/test_wire_edges.py", "queues/test_queue_contents.py"
    ),
    "leaderq.queues.wire.payload": _tests("queues/test_payload.py", "queues/test_death_records.py", "queues/test_wire_edges.py"),
    "leaderq.queues.wire.znodes": _tests(
        "queues"
    ),
    "leaderq.queues.consuming.pending": _tests("queues"),
    "leaderq.writing.groups": _tests("queues/test_send_queue.py", "queues/test_putting_pieces.py"),
    "leaderq.threads.backoff": _tests("threads/test_backoff.py"),
    "leaderq.threads.capacity": _tests("threads/test_capacity.py"),
    "leaderq.threads.listeners": _tests("threads/test_listeners_of_threads.py"),
    "leaderq.threads.waker": _tests("threads/test_waker.py"),
    "leaderq.coalescing.automaton": _tests(
        "coalescing/test_traffic_automaton.py",
        "coalescing/test_analysing.py",
        "coalescing/test_distributed_slots.py",
        "coalescing/test_coordinator_model.py",
    ),
    "leaderq.coalescing.rules": _tests(
        "coalescing/test_coordinator.py", "coalescing/test_coordinator_time.py"
    ),
    "leaderq.kafka.consuming.positions": _tests(
        "kafka/test_positions.py", "kafka/test_positions_model.py", "kafka/test_resting.py", "kafka/test_abandoned_batches.py", "kafka/test_batch_handler.py"
    ),
    "leaderq.kafka.consuming.commits": _tests("kafka/test_commits.py", "kafka/test_abandoned_batches.py"),
    "leaderq.kafka.consuming.read_ahead": _tests("kafka/test_read_ahead.py", "kafka/test_batch_bytes.py"),
    "leaderq.kafka.handling.on_error": _tests(
        "kafka/test_on_error.py", "kafka/test_handling_laws.py", "kafka/test_hold_ups.py"
    ),
    "leaderq.kafka.handling.crash_marks": _tests("kafka/test_crash_marks.py", "kafka/test_batch_handler.py", "kafka/test_handling_order.py", "kafka/test_workers.py", "kafka/test_hold_ups.py"),
    "leaderq.kafka.handling.rate_limit": _tests("kafka/test_rate_limit.py"),
    "leaderq.kafka.dead_letters.format": _tests("kafka/test_dead_letters.py"),
    "leaderq.kafka.record": _tests("kafka/test_record.py", "kafka/test_read_ahead.py", "kafka/test_batch_bytes.py", "kafka/test_positions.py", "kafka/test_handling_order.py", "kafka/test_batch_handler.py", "kafka/test_dead_letters.py", "kafka/test_confluent_errors.py", "kafka/test_delivery.py"),
    "leaderq.producing.account": _tests(
        "producing/test_account_laws.py", "producing/test_producing_states.py"
    ),
    "leaderq.producing.journal.records": _tests(
        "producing/journal/test_journal_corruption.py", "producing/journal/test_journal_appending.py"
    ),
    "leaderq.producing.journal.policy": _tests(
        "producing/journal/test_journal_appending.py", "producing/test_refusing_disks.py"
    ),
    "leaderq.running.supervision": _tests("running/test_cool_off.py", "running/test_budgets.py"),
    "leaderq.plain": _tests("test_plain.py"),
    "leaderq.config.kinds": _tests("config"),
}
