"""kafka-python's private parts: all in one file, and unchanged since they were read."""

from __future__ import annotations

import hashlib
import inspect
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka.consumer.fetcher import ConsumerRecord
from test_declaration import Sums, dressed

import leaderq.kafka
from leaderq.errors import MissingPiece
from leaderq.kafka.clients import kafka_python_consumer, private_api
from leaderq.kafka.dead_letters.replay import DeadLetterReplay
from leaderq.kafka.record import FIELDS

PACKAGE = Path(leaderq.kafka.__file__).parent
RELIED_ON = """
kafka.coordinator.base.BaseCoordinator f4aeac63196cfb26 request_rejoin need_rejoin join_group_async
kafka.coordinator.consumer.ConsumerCoordinator 9cc3ca06bb563baf group_protocols poll need_rejoin
  fetch_committed_offsets fetch_committed_offsets_async _commit_offsets_sync_async
  _on_join_prepare_async _on_join_complete_async
kafka.coordinator.assignors.range.RangePartitionAssignor 44def6a9b071cc29 metadata on_assignment
kafka.consumer.fetcher.Fetcher ceab984e178f9128 _create_fetch_requests fetch_records fetched_records
  _fetchable_partitions validate_offsets_if_needed
kafka.consumer.group.KafkaConsumer c1bc7a6aff544661 position
kafka.consumer.subscription_state.TopicPartitionState 78acf1b0fa73eecd seek _get_position
  maybe_validate_position awaiting_validation
kafka.cluster.ClusterMetadata 3fbaa3f7cc42e6ee set_topics partitions_for_topic topic_id topics
  metadata_request leader_epoch_for_partition
kafka.net.compat.KafkaNetClient 005484425a0e5c85 __init__ await_ready
kafka.net.inet.KafkaNetSocket 60d8a2c78e18a61c register_class __new__ socket sock_connect
kafka.net.manager.KafkaConnectionManager b3d1947139b90be5 get_connection call_soon wait_for
kafka.net.selector.NetworkSelector 248fd3eea9786b49 run call_soon_with_future wakeup
kafka.producer.kafka.KafkaProducer d61fd976ec303bf6 send flush partitions_for _unregister_cleanup
  close
kafka.producer.record_accumulator.RecordAccumulator d130e6daaae97c21 append has_incomplete
kafka.producer.sender.Sender 0a4a41ef6d121920 force_close wakeup _maybe_send_pending_request
kafka.record.default_records.DefaultRecordBatch 823e62bb24a91777 _read_msg __next__
kafka.producer.transaction_manager.TransactionManager 5f2e2c19c9951bf6 initialize_transactions
  begin_commit begin_abort send_offsets_to_transaction last_error _supports_epoch_bump
"""
"""Each class, the hash of its source as read, and what we call, override or reason about."""


def source(owner: Any, name: str) -> str:
    found = inspect.getattr_static(owner, name)
    return inspect.getsource(found.fget if isinstance(found, property) else getattr(owner, name))


def test_the_functions_of_kafka_python_that_are_relied_on_are_the_ones_that_were_read():
    changed = {}
    for entry in re.split(r"\n(?=kafka)", RELIED_ON.strip()):
        path, seen, *names = entry.split()
        module, _, kind = path.rpartition(".")
        owner = getattr(import_module(module), kind)
        text = "".join(source(owner, name) for name in names)
        if (found := hashlib.sha256(text.encode()).hexdigest()[:16]) != seen:
            changed[path] = found
    assert changed == {}, (
        "kafka-python has changed: read these again, with what uses them, then note the new hashes"
        " here"
    )


PRIVATE = re.compile(r"(?:\.|def )(_[a-z]\w*)")
USED = re.compile(r"""(?<!\bself)(?<!\bcls)\.(_[a-z]\w*)|attr\([^)]*["'](_[a-z]\w*)""")


def test_no_other_file_of_leaderq_kafka_touches_a_private_part_of_kafka_python():
    folder = Path(inspect.getfile(kafka)).parent
    theirs = [*folder.glob("*.py")]
    for part in ("consumer", "coordinator", "metrics", "net", "producer", "record"):
        theirs += (folder / part).rglob("*.py")
    private = {name for path in theirs for name in PRIVATE.findall(path.read_text())}
    uses = [
        (path.name, name)
        for path in PACKAGE.rglob("*.py")
        for names in USED.findall(path.read_text())
        for name in names
        if name in private
    ]
    assert {name for name, _ in uses} == {"private_api.py"}, uses


def begin(what: str) -> None:
    if what == "replay":
        DeadLetterReplay("localhost:1", "sums-dead", "sums", timeout_s=0.1).run(lambda _: None)
        return
    career = dressed(type("Sums", (Sums,), {"offsets": what}), career="sums")
    career.settings = replace(career.settings, kafka="localhost:1", connect_timeout_s=0.1)
    career.prepare()


@pytest.mark.parametrize("what", ["kafka", "transaction", "replay"])
def test_neither_a_career_nor_a_replay_begins_on_another_version_than_the_one_that_was_read(
    monkeypatch, what
):
    assert kafka.__version__ == private_api.VERSION
    monkeypatch.setattr(kafka, "__version__", "3.0.13")
    with pytest.raises(MissingPiece, match=r"3\.0\.13 .* pip install 'kafka-python==3\.0\.12'"):
        begin(what)


def test_its_records_have_the_fields_in_the_places_that_were_seen():
    assert " ".join(ConsumerRecord._fields) == (
        "topic partition leader_epoch offset timestamp timestamp_type key value headers checksum"
        " serialized_key_size serialized_value_size serialized_header_size"
    )
    record = private_api.seen_as(
        kafka_python_consumer._Seen,
        [ConsumerRecord("t", 1, 7, 2, 3, 0, b"k", b"v", [("h", b"x")], None, 1, 1, 1)],
    )[0]
    fields = ("t", 1, 2, 3, b"k", b"v", [("h", b"x")])
    assert record.as_dict() == dict(zip(FIELDS, fields, strict=True))
