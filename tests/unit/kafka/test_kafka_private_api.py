"""kafka-python's private parts: all in one file, and unchanged since they were read."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterator
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

import leaderq.kafka
from leaderq.config import Settings
from leaderq.errors import MissingPiece
from leaderq.events import EventBus
from leaderq.kafka import KafkaLeaderCareer
from leaderq.kafka.clients import kafka_python_connection, kafka_python_consumer, private_api
from leaderq.kafka.clients.private_api import HOOKS, RELIED_ON, require_what_the_fence_relies_on
from leaderq.kafka.dead_letters.replay import DeadLetterReplay

PACKAGE = Path(leaderq.kafka.__file__).parent
OVERRIDING = {
    "kafka.coordinator.assignors.range.RangePartitionAssignor": (
        kafka_python_consumer._GatedAssignor
    ),
    "kafka.net.inet.KafkaNetSocket": kafka_python_connection._Direct,
    "kafka.net.manager.KafkaConnectionManager": kafka_python_connection._Manager,
    "kafka.net.selector.NetworkSelector": kafka_python_connection._Selector,
}
SEEN = {
    "BaseCoordinator.request_rejoin": "ca6edacf2f0149e2",
    "BaseCoordinator.need_rejoin": "ae48ec8f8589812f",
    "BaseCoordinator.join_group_async": "f9b7d8038dabf04d",
    "ConsumerCoordinator.group_protocols": "c121247c35e579b2",
    "ConsumerCoordinator.poll": "cb7886f194ce9e82",
    "ConsumerCoordinator.need_rejoin": "7f90bc6c6f09cb6e",
    "ConsumerCoordinator.fetch_committed_offsets": "97c75d8b7ac55b80",
    "ConsumerCoordinator.fetch_committed_offsets_async": "3647a86ae93a2c46",
    "ConsumerCoordinator._commit_offsets_sync_async": "8ffc5819e97c13a5",
    "ConsumerCoordinator._on_join_prepare_async": "1f4f6f97894b2c3e",
    "ConsumerCoordinator._on_join_complete_async": "5f54fc5741798bb3",
    "RangePartitionAssignor.metadata": "0c218ffc8c76ec51",
    "RangePartitionAssignor.on_assignment": "7e4880534a7f6876",
    "Fetcher._create_fetch_requests": "4399843be7e40180",
    "Fetcher.fetch_records": "aec7275fea19760d",
    "Fetcher.fetched_records": "bf91319f1a2fda46",
    "Fetcher._fetchable_partitions": "ac80c911cfb62f35",
    "Fetcher.validate_offsets_if_needed": "2e35ecec2b17ed01",
    "KafkaConsumer.position": "c1bc7a6aff544661",
    "TopicPartitionState.seek": "d1a2f98d60f55c3e",
    "TopicPartitionState._get_position": "753acdede90767fd",
    "TopicPartitionState.maybe_validate_position": "b3bba30c078de707",
    "TopicPartitionState.awaiting_validation": "0c56961cad8965f3",
    "ClusterMetadata.set_topics": "b394741977c451f8",
    "ClusterMetadata.partitions_for_topic": "f4da75f738dcd32d",
    "ClusterMetadata.topic_id": "babcdc8ff32fbf6c",
    "ClusterMetadata.topics": "545d65afc14fe316",
    "ClusterMetadata.metadata_request": "21bd6ac3202cfb15",
    "KafkaNetClient.__init__": "9d5a78ad19c39989",
    "KafkaNetClient.await_ready": "00aae296b8b3cee6",
    "KafkaNetSocket.register_class": "852a5238a9b19b1c",
    "KafkaNetSocket.__new__": "ad0f52b7e767d273",
    "KafkaNetSocket.socket": "f0d67753404e1b24",
    "KafkaNetSocket.sock_connect": "36c15b0ce9196d15",
    "KafkaConnectionManager.get_connection": "e18f019d1fbdfbf8",
    "KafkaConnectionManager.call_soon": "56ad0940f05ce02b",
    "KafkaConnectionManager.wait_for": "f0ea73bf014c439c",
    "NetworkSelector.run": "491eb51ca4037cb4",
    "NetworkSelector.call_soon_with_future": "032b758a56ed80fc",
    "NetworkSelector.wakeup": "94891f00e4aa8a9b",
    "KafkaProducer.send": "70c63bac7acf5e37",
    "KafkaProducer.flush": "510543a4f775a414",
    "KafkaProducer.partitions_for": "538ac851747ae945",
    "KafkaProducer._unregister_cleanup": "b3d9ec72a2fabee1",
    "KafkaProducer.close": "431699b88f333650",
    "RecordAccumulator.append": "834a501e1eab0788",
    "RecordAccumulator.has_incomplete": "010e82525111aafe",
    "Sender.force_close": "7963a0d23bc94fc9",
    "Sender.wakeup": "a3677a55679dcce3",
    "Sender._maybe_send_pending_request": "070dac106e8de270",
    "TransactionManager.initialize_transactions": "53b11e92714f6217",
    "TransactionManager.begin_commit": "2695e54df2f4c235",
    "TransactionManager.begin_abort": "62372b6f9a55cbf2",
    "TransactionManager.send_offsets_to_transaction": "fd471e34aef64fde",
    "TransactionManager.last_error": "044a9bdc2c672dd2",
    "TransactionManager._supports_epoch_bump": "85b509f788d112d1",
}


def kafkas(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def source(owner: Any, name: str) -> str:
    found = inspect.getattr_static(owner, name)
    return inspect.getsource(found.fget if isinstance(found, property) else getattr(owner, name))


def test_the_functions_of_kafka_python_that_are_relied_on_are_the_ones_that_were_read() -> None:
    sources = {
        f"{path.rpartition('.')[2]}.{name}": source(kafkas(path), name)
        for path, names in RELIED_ON.items()
        for name in names.split()
    }
    found = {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in sources.items()}
    assert found == SEEN, (
        "kafka-python has changed: read these again, with what uses them, then note the new hashes"
        " here"
    )


def test_its_records_have_the_fields_in_the_places_that_were_seen() -> None:
    assert (
        " ".join(ConsumerRecord._fields)
        == "topic partition leader_epoch offset timestamp timestamp_type key value headers"
        " checksum "
        "serialized_key_size serialized_value_size serialized_header_size"
    )
    record = private_api.seen_as(
        kafka_python_consumer._Seen,
        [ConsumerRecord("t", 1, 7, 2, 3, 0, b"k", b"v", [("h", b"x")], None, 1, 1, 1)],
    )[0]
    fields = {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp_ms": 3,
        "key": b"k",
        "value": b"v",
        "headers": [("h", b"x")],
    }
    assert record.as_dict() == fields


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


def test_a_use_of_a_private_part_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(
        "def f(client): return client._coordinator, setattr(client, '_sender', 1), client._mine"
    )
    assert list(uses_of_private_parts(tmp_path / "x.py")) == [
        "x.py:1 client._coordinator",
        "x.py:1 setattr(client, '_sender', 1)",
    ]


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


def group_protocols_without_asking(self: Any) -> list[Any]:
    return [("range", b"")]


@pytest.mark.parametrize(
    ("owner", "name", "other", "told"),
    [
        (
            ConsumerCoordinator,
            "group_protocols",
            group_protocols_without_asking,
            "the assignor is not asked",
        ),
        (
            BaseCoordinator,
            "_do_join_and_sync_async",
            None,
            "BaseCoordinator does not use group_protocols",
        ),
        (
            TransactionManager,
            "_supports_epoch_bump",
            None,
            r"no kafka\S+TransactionManager\._supports_epoch_bump",
        ),
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


class Sums(KafkaLeaderCareer):
    topics = "numbers"

    def handle(self, records: Any, term: Any) -> None:
        raise AssertionError(records)


def prepared(offsets: str) -> None:
    career: Any = type("Sums", (Sums,), {"offsets": offsets})()
    career.settings = Settings(kafka="localhost:1", career="sums", connect_timeout_s=0.1)
    career.events, career.candidate_id, career.session = EventBus(), "me", None
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
