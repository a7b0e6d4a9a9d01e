"""The pure modules, without threads, clocks and sockets of their own; and the tests of each."""

from __future__ import annotations


def _tests(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{name}" for name in names)


MODULES: dict[str, tuple[str, ...]] = {
    "leaderq.election.decision": _tests("election/test_decision.py"),
    "leaderq.election.layout": _tests("election/test_layout.py"),
    "leaderq.election.software": _tests("election/test_software.py"),
    "leaderq.term": _tests("test_term.py"),
    "leaderq.zookeeper.proof": _tests("zookeeper/test_proof.py"),
    "leaderq.zookeeper.seat": _tests("election/test_tenure_signals.py", "zookeeper/test_seat.py"),
    "leaderq.zookeeper.wire": _tests("zookeeper/test_wire.py"),
    "leaderq.zookeeper.paths": _tests("zookeeper/test_paths.py"),
    "leaderq.zookeeper.watching": _tests("zookeeper/test_persistent_watches.py"),
    "leaderq.dyno.transitions": _tests("dyno/test_messages_as_bytes.py"),
    "leaderq.dyno.index": _tests("dyno/test_shard_index.py"),
    "leaderq.dyno.message": _tests("dyno/test_messages_as_bytes.py"),
    "leaderq.dyno.layout": _tests("dyno/test_messages_as_bytes.py"),
    "leaderq.queues.wire.names": _tests(
        "queues/test_names.py", "queues/test_payload.py", "queues/test_shard_plan.py"
    ),
    "leaderq.queues.wire.payload": _tests("queues/test_payload.py"),
    "leaderq.queues.wire.znodes": _tests("queues/test_shard_plan.py", "queues/test_payload.py"),
    "leaderq.queues.consuming.pending": _tests("queues/test_pending_names.py"),
    "leaderq.zookeeper.writing.groups": _tests("queues/test_send_queue_edges.py"),
    "leaderq.zookeeper.writing.in_flight": _tests("zookeeper/test_in_flight_limit.py"),
    "leaderq.threads.retry": _tests("threads/test_waker.py"),
    "leaderq.threads.capacity": _tests("threads/test_capacity.py"),
    "leaderq.threads.listeners": _tests("threads/test_listeners_of_threads.py"),
    "leaderq.threads.waker": _tests("threads/test_waker.py"),
    "leaderq.coalescing.automaton": _tests(
        "coalescing/test_coalescing_rules.py", "coalescing/test_coordinator_model.py"
    ),
    "leaderq.coalescing.rules": _tests("coalescing/test_coalescing_rules.py"),
    "leaderq.kafka.consuming.positions": _tests("kafka/test_positions.py"),
    "leaderq.kafka.consuming.commits": _tests(
        "kafka/test_commit_states.py", "kafka/test_commits.py"
    ),
    "leaderq.kafka.consuming.rate_limit": _tests("kafka/test_rate_limit.py"),
    "leaderq.kafka.consuming.read_ahead": _tests("kafka/test_read_ahead.py"),
    "leaderq.kafka.handling.on_error": _tests("kafka/test_on_error.py"),
    "leaderq.kafka.handling.crash_marks": _tests("kafka/test_crash_marks.py"),
    "leaderq.kafka.dead_letters.format": _tests("kafka/test_dead_letters.py"),
    "leaderq.kafka.record": _tests("kafka/test_record.py"),
    "leaderq.producing.account": _tests("producing/test_account.py"),
    "leaderq.producing.request": _tests(
        "producing/test_producing_bytes.py", "producing/test_buffer_laws.py"
    ),
    "leaderq.producing.journal.records": _tests("producing/journal/test_record_bytes.py"),
    "leaderq.producing.journal.policy": _tests("producing/journal/test_record_bytes.py"),
    "leaderq.running.watchdog": _tests("running/test_guardian_link.py"),
    "leaderq.running.supervision": _tests("running/test_supervision_details.py"),
    "leaderq.schedules.plan": _tests("schedules/test_plan.py"),
    "leaderq.schedules.record": _tests("schedules/test_schedule_record.py"),
    "leaderq.fencing.fencing_token": _tests("fencing/test_fencing_token.py"),
    "leaderq.fencing.http": _tests("fencing/test_http_and_s3.py"),
    "leaderq.fencing.s3": _tests("fencing/test_http_and_s3.py"),
    "leaderq.base.arguments": _tests("test_arguments.py"),
    "leaderq.config.kinds": _tests("config/test_kinds_of_values.py", "config/test_schema.py"),
}
