"""Offsets in ZooKeeper, with a session and a term that the test answers for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.errors import ConnectionLost, NoNode
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.zookeeper_offsets import TopicOffsets, ZooKeeperOffsets
from leaderq.zookeeper import Create, SetData

A = Partition("t", 0)
USERS = Create("/user")


class Servers:
    def __init__(self) -> None:
        self.znodes: dict[str, bytes] = {}
        self.writes: list[tuple[Any, ...]] = []
        self.errors: list[Exception] = []
        self.during: list[Any] = []

    def get(self, path: str) -> tuple[bytes, None]:
        if path not in self.znodes:
            raise NoNode("gone", path=path)
        return self.znodes[path], None

    def ensure_path(self, path: str) -> None: ...

    def write(self, ops: Any) -> None:
        self.writes.append(tuple(ops))
        for one in self.during:
            one()
        self.during = []
        if self.errors:
            raise self.errors.pop(0)
        for op in ops:
            if isinstance(op, Create | SetData):
                self.znodes[op.path] = op.data


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
def term(servers: Servers) -> Any:
    return SimpleNamespace(
        number=3, write=servers.write, check=lambda: None, wait=lambda seconds: None
    )


@pytest.fixture
def store(servers: Servers) -> Any:
    made: Any = ZooKeeperOffsets(servers, "/o")  # type: ignore[arg-type]
    yield made
    made.close()


def commit(store: Any, term: Any, offset: int) -> None:
    future = store.commit(None, term, {A: offset})
    while not future.done(5.0):
        pass


def test_operations_go_with_the_batch_that_they_were_added_for(
    store: Any, term: Any, servers: Servers
) -> None:
    store.add([USERS])
    commit(store, term, 5)
    commit(store, term, 6)
    assert [write[1:] for write in servers.writes] == [(USERS,), ()]


def test_operations_added_while_a_commit_is_under_way_go_with_the_next(
    store: Any, term: Any, servers: Servers
) -> None:
    later = Create("/later")
    store.add([USERS])
    servers.during = [lambda: store.add([later])]
    commit(store, term, 5)
    commit(store, term, 6)
    assert [write[1:] for write in servers.writes] == [(USERS,), (later,)]


@pytest.mark.parametrize("has_happened", [True, False])
def test_a_write_whose_answer_was_lost_is_repeated_unless_it_has_happened(
    store: Any, term: Any, servers: Servers, has_happened: bool
) -> None:
    commit(store, term, 5)
    if has_happened:

        def applied() -> None:
            for op in servers.writes[-1]:
                servers.znodes[op.path] = op.data

        servers.during = [applied]
    servers.errors = [ConnectionLost("no answer")]
    commit(store, term, 6)
    assert len(servers.writes) == (2 if has_happened else 3)
    kept = TopicOffsets.decoded(servers.znodes["/o/t"], "/o/t")
    assert (kept.offsets, kept.term) == ({"0": 6}, 3)
