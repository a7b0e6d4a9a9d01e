"""The pure modules, without threads, clocks and sockets of their own; and the tests of each."""

from __future__ import annotations

_TABLE = """
election.decision: election/test_decision.py
election.layout: election/test_layout.py
election.software: election/test_software.py
term: test_term.py
zookeeper.proof: zookeeper/test_proof.py
zookeeper.seat: election/test_tenure_signals.py zookeeper/test_seat.py
zookeeper.wire: zookeeper/test_wire.py
zookeeper.paths: zookeeper/test_paths.py
zookeeper.watching: zookeeper/test_persistent_watches.py
dyno.transitions: dyno/test_messages_as_bytes.py
dyno.index: dyno/test_shard_index.py
engine.due_order: dyno/test_shard_index.py queues/test_pending_names.py
dyno.message: dyno/test_messages_as_bytes.py
dyno.layout: dyno/test_messages_as_bytes.py
queues.wire.names: queues/test_names.py queues/test_payload.py queues/test_shard_plan.py
queues.wire.payload: queues/test_payload.py
queues.wire.znodes: queues/test_shard_plan.py queues/test_payload.py
queues.consuming.pending: queues/test_pending_names.py
zookeeper.writing.groups: queues/test_send_queue_edges.py
zookeeper.writing.in_flight: zookeeper/test_in_flight_limit.py
threads.retry: threads/test_waker.py
threads.capacity: threads/test_capacity.py
threads.listeners: threads/test_listeners_of_threads.py
threads.waker: threads/test_waker.py
coalescing.automaton: coalescing/test_coalescing_rules.py coalescing/test_coordinator_model.py
coalescing.rules: coalescing/test_coalescing_rules.py
kafka.consuming.positions: kafka/test_positions.py
kafka.consuming.commits: kafka/test_commit_states.py kafka/test_commits.py
kafka.consuming.rate_limit: kafka/test_rate_limit.py
kafka.consuming.read_ahead: kafka/test_read_ahead.py
kafka.handling.on_error: kafka/test_on_error.py
kafka.handling.crash_marks: kafka/test_crash_marks.py
kafka.dead_letters.format: kafka/test_dead_letters.py
kafka.record: kafka/test_record.py
producing.account: producing/test_account.py
producing.request: producing/test_producing_bytes.py producing/test_buffer_laws.py
producing.journal.records: producing/journal/test_record_bytes.py
producing.journal.policy: producing/journal/test_record_bytes.py
running.watchdog: running/test_guardian_link.py
running.supervision: running/test_supervision_details.py
schedules.plan: schedules/test_plan.py
schedules.record: schedules/test_schedule_record.py
fencing.fencing_token: fencing/test_fencing_token.py
fencing.http: fencing/test_http_and_s3.py
fencing.s3: fencing/test_http_and_s3.py
base.arguments: test_arguments.py
config.kinds: config/test_kinds_of_values.py config/test_schema.py
"""

MODULES = {
    module: [f"tests/unit/{test}" for test in tests.split()]
    for module, _, tests in (line.partition(": ") for line in _TABLE.strip().splitlines())
}
