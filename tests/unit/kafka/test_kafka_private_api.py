"""kafka-python's private parts: all in one file, and unchanged since they were read."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka.consumer.fetcher import ConsumerRecord
from kafka.coordinator.base import BaseCoordinator
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.producer.sender import Sender
from kafka.producer.transaction_manager import TransactionManager
from test_declaration import Sums, dressed

import leaderq.kafka
from leaderq.errors import MissingPiece
from leaderq.kafka.clients import kafka_python_connection, kafka_python_consumer, private_api
from leaderq.kafka.clients.private_api import require_what_the_fence_relies_on
from leaderq.kafka.dead_letters.replay import DeadLetterReplay
from leaderq.kafka.record import FIELDS

PACKAGE = Path(leaderq.kafka.__file__).parent
OVERRIDING = {
    "kafka.coordinator.assignors.range.RangePartitionAssignor": (
        kafka_python_consumer._GatedAssignor
    ),
    "kafka.net.inet.KafkaNetSocket": kafka_python_connection._Direct,
    "kafka.net.manager.KafkaConnectionManager": kafka_python_connection._Manager,
    "kafka.net.selector.NetworkSelector": kafka_python_connection._Selector,
}
HOOKS = {
    "kafka.coordinator.assignors.range.RangePartitionAssignor": {
        "metadata": "asked right before every JoinGroup request: where a join is refused",
        "on_assignment": "the only place that says each time that partitions were assigned",
    },
    "kafka.net.inet.KafkaNetSocket": {
        "socket": "ours loses no data that came right before the end of the stream",
        "sock_connect": "the socket of a failed attempt is forgotten; ours is closed",
    },
    "kafka.net.manager.KafkaConnectionManager": {
        "get_connection": "why a connection failed is only logged; ours remembers it"
    },
    "kafka.net.selector.NetworkSelector": {
        "run": "a time-out leaves a cycle of frames; it waits for ever for a thread that forgot it"
    },
}
"""What leaderq overrides, each with the reason."""
RELIED_ON = {
    "kafka.coordinator.base.BaseCoordinator": (
        "f4aeac63196cfb26",
        "request_rejoin need_rejoin join_group_async",
    ),
    "kafka.coordinator.consumer.ConsumerCoordinator": (
        "9cc3ca06bb563baf",
        "group_protocols poll need_rejoin fetch_committed_offsets"
        " fetch_committed_offsets_async _commit_offsets_sync_async"
        " _on_join_prepare_async _on_join_complete_async",
    ),
    "kafka.coordinator.assignors.range.RangePartitionAssignor": (
        "44def6a9b071cc29",
        "metadata on_assignment",
    ),
    "kafka.consumer.fetcher.Fetcher": (
        "ceab984e178f9128",
        "_create_fetch_requests fetch_records fetched_records _fetchable_partitions"
        " validate_offsets_if_needed",
    ),
    "kafka.consumer.group.KafkaConsumer": (
        "c1bc7a6aff544661",
        "position",
    ),
    "kafka.consumer.subscription_state.TopicPartitionState": (
        "78acf1b0fa73eecd",
        "seek _get_position maybe_validate_position awaiting_validation",
    ),
    "kafka.cluster.ClusterMetadata": (
        "d55ab62476063c54",
        "set_topics partitions_for_topic topic_id topics metadata_request",
    ),
    "kafka.net.compat.KafkaNetClient": (
        "005484425a0e5c85",
        "__init__ await_ready",
    ),
    "kafka.net.inet.KafkaNetSocket": (
        "60d8a2c78e18a61c",
        "register_class __new__ socket sock_connect",
    ),
    "kafka.net.manager.KafkaConnectionManager": (
        "b3d1947139b90be5",
        "get_connection call_soon wait_for",
    ),
    "kafka.net.selector.NetworkSelector": (
        "248fd3eea9786b49",
        "run call_soon_with_future wakeup",
    ),
    "kafka.producer.kafka.KafkaProducer": (
        "d61fd976ec303bf6",
        "send flush partitions_for _unregister_cleanup close",
    ),
    "kafka.producer.record_accumulator.RecordAccumulator": (
        "d130e6daaae97c21",
        "append has_incomplete",
    ),
    "kafka.producer.sender.Sender": (
        "0a4a41ef6d121920",
        "force_close wakeup _maybe_send_pending_request",
    ),
    "kafka.producer.transaction_manager.TransactionManager": (
        "5f2e2c19c9951bf6",
        "initialize_transactions begin_commit begin_abort send_offsets_to_transaction"
        " last_error _supports_epoch_bump",
    ),
}
"""The functions that we call, override or reason about, and the hash of their source as read."""


def kafkas(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def source(owner: Any, name: str) -> str:
    found = inspect.getattr_static(owner, name)
    return inspect.getsource(found.fget if isinstance(found, property) else getattr(owner, name))


def test_the_functions_of_kafka_python_that_are_relied_on_are_the_ones_that_were_read() -> None:
    changed = {}
    for path, (seen, names) in RELIED_ON.items():
        text = "".join(source(kafkas(path), name) for name in names.split())
        if (found := hashlib.sha256(text.encode()).hexdigest()[:16]) != seen:
            changed[path] = found
    assert changed == {}, (
        "kafka-python has changed: read these again, with what uses them, then note the new hashes"
        " here"
    )


def test_its_records_have_the_fields_in_the_places_that_were_seen() -> None:
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


@cache
def private_names_of_kafka_python() -> set[str]:
    names: set[str] = set()
    folder = Path(inspect.getfile(kafka)).parent
    for path in folder.rglob("*.py"):
        if {"vendor", "protocol", "benchmarks", "cli", "admin"}.intersection(
            path.relative_to(folder).parts
        ):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def uses_of_private_parts(path: Path) -> Iterator[str]:
    """Where a file reads or sets, on anything but ``self``, what is private in kafka-python."""
    private = private_names_of_kafka_python()
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in private
            and ast.unparse(node.value) not in ("self", "cls")
        ):
            yield f"{path.name}:{node.lineno} {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "getattr",
            "setattr",
            "delattr",
        ):
            yield from (
                f"{path.name}:{node.lineno} {ast.unparse(node)}"
                for one in node.args
                if isinstance(one, ast.Constant) and one.value in private
            )


def test_no_other_file_of_leaderq_kafka_touches_a_private_part_of_kafka_python() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "private_api.py"]
    assert [use for path in files for use in uses_of_private_parts(path)] == []


@pytest.mark.parametrize("path", HOOKS)
def test_every_hook_is_one_of_kafka_pythons_and_is_overridden(path: str) -> None:
    kafkas_own, ours = kafkas(path), OVERRIDING[path]
    assert issubclass(ours, kafkas_own)
    assert set(HOOKS[path]) == {
        name
        for name, one in vars(ours).items()
        if inspect.isfunction(one) and name != "__init__" and hasattr(kafkas_own, name)
    }


def test_each_listed_function_of_ours_is_used() -> None:
    defined = {
        name
        for name, one in vars(private_api).items()
        if inspect.isfunction(one) and not name.startswith("_")
    }
    text = "".join(
        path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "private_api.py"
    )
    assert {name for name in defined if f"private_api.{name}" not in text} == set()


def test_a_career_starts_on_the_kafka_python_that_was_read() -> None:
    require_what_the_fence_relies_on()


@pytest.mark.parametrize(
    ("owner", "name", "other", "told"),
    [
        (ConsumerCoordinator, "group_protocols", lambda self: [], "the assignor is not asked"),
        (BaseCoordinator, "_do_join_and_sync_async", None, "does not use group_protocols"),
        (TransactionManager, "_supports_epoch_bump", None, r"no TransactionManager\._supports"),
        (Sender, "_maybe_send_pending_request", None, "Sender does not use await_ready"),
    ],
)
def test_one_that_would_let_a_zombie_fence_its_successor_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, other: Any, told: str
) -> None:
    if other is None:
        monkeypatch.delattr(owner, name)
    else:
        monkeypatch.setattr(owner, name, other)
    with pytest.raises(MissingPiece, match=told) as refused:
        require_what_the_fence_relies_on()
    assert "pip install 'kafka-python==" in str(refused.value)


def prepared(offsets: str) -> None:
    career = dressed(type("Sums", (Sums,), {"offsets": offsets}), career="sums")
    career.settings = replace(career.settings, kafka="localhost:1", connect_timeout_s=0.1)
    career.prepare()


def replayed() -> None:
    DeadLetterReplay("localhost:1", "sums-dead", "sums", timeout_s=0.1).run(lambda _: None)


@pytest.mark.parametrize(
    "begin",
    [partial(prepared, "kafka"), partial(prepared, "transaction"), replayed],
    ids=["kafka", "transaction", "replay"],
)
def test_neither_a_career_nor_a_replay_begins_without_what_the_fence_relies_on(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[[], None]
) -> None:
    monkeypatch.delattr(TransactionManager, "_supports_epoch_bump")
    with pytest.raises(MissingPiece, match="_supports_epoch_bump; pip install"):
        begin()
