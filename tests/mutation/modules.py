"""The pure modules, without threads, clocks and sockets of their own; and the tests of each."""

from __future__ import annotations


def _tests(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{name}" for name in names)


MODULES: dict[str, tuple[str, ...]] = {
    "leaderq.election.decision": _tests("election/test_decision.py"),
    "leaderq.election.layout": _tests("election/test_layout.py", "election/test_records.py"),
    "leaderq.term": _tests("test_term.py", "test_term_clock.py"),
    "leaderq.zookeeper.wire": _tests(
        "zookeeper/test_wire.py",
        "zookeeper/test_translation.py",
        "zookeeper/test_answers.py",
    ),
    "leaderq.zookeeper.paths": _tests("zookeeper/test_paths.py", "zookeeper/test_address.py"),
    "leaderq.zookeeper.watching": _tests("zookeeper/test_persistent_watches.py"),
    "leaderq.dyno.transitions": _tests(
        "dyno/test_messages_as_bytes.py", "dyno/test_dyno_names_and_transitions.py"
    ),
    "leaderq.dyno.index": _tests("dyno/test_shard_index.py", "dyno/test_shard_index_corners.py"),
    "leaderq.dyno.message": _tests("dyno/test_messages_as_bytes.py"),
    "leaderq.dyno.layout": _tests("dyno/test_dyno_names_and_transitions.py"),
    "leaderq.queues.wire.names": _tests(
        "queues/test_names.py", "queues/test_wire_edges.py", "queues/test_queue_contents.py"
    ),
    "leaderq.queues.wire.payload": _tests(
        "queues/test_payload.py", "queues/test_death_records.py", "queues/test_wire_edges.py"
    ),
    "leaderq.queues.wire.znodes": _tests(
        "queues/test_shard_plan.py", "queues/test_queue_contents.py", "queues/test_wire_edges.py"
    ),
    "leaderq.queues.consuming.pending": _tests(
        "queues/test_pending_names.py", "queues/test_pending_model.py"
    ),
    "leaderq.writing.groups": _tests("queues/test_send_queue_edges.py"),
    "leaderq.threads.retry": _tests("threads/test_retry.py"),
    "leaderq.threads.capacity": _tests("threads/test_capacity.py"),
    "leaderq.threads.listeners": _tests("threads/test_listeners_of_threads.py", "test_events.py"),
    "leaderq.threads.waker": _tests("threads/test_waker.py"),
    "leaderq.coalescing.automaton": _tests(
        "coalescing/test_traffic_automaton.py",
        "coalescing/test_analysing.py",
        "coalescing/test_distributed_slots.py",
        "coalescing/test_coordinator_model.py",
    ),
    "leaderq.coalescing.rules": _tests("coalescing/test_coalescing_rules.py"),
    "leaderq.kafka.consuming.positions": _tests(
        "kafka/test_positions.py", "kafka/test_positions_model.py"
    ),
    "leaderq.kafka.consuming.commits": _tests("kafka/test_commits.py"),
    "leaderq.kafka.consuming.read_ahead": _tests("kafka/test_read_ahead.py"),
    "leaderq.kafka.handling.on_error": _tests("kafka/test_on_error.py"),
    "leaderq.kafka.handling.crash_marks": _tests("kafka/test_crash_marks.py"),
    "leaderq.kafka.handling.rate_limit": _tests("kafka/test_rate_limit.py"),
    "leaderq.kafka.dead_letters.format": _tests("kafka/test_dead_letters.py"),
    "leaderq.kafka.record": _tests("kafka/test_record.py"),
    "leaderq.producing.account": _tests("producing/test_account.py"),
    "leaderq.producing.journal.records": _tests("producing/journal/test_record_bytes.py"),
    "leaderq.producing.journal.policy": _tests("producing/journal/test_policy_values.py"),
    "leaderq.running.supervision": _tests("running/test_supervision_details.py"),
    "leaderq.arguments": _tests("test_arguments.py"),
    "leaderq.config.kinds": _tests("config/test_kinds_of_values.py"),
}
