"""Offsets that the user keeps, those in znodes, and those in a database."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from terms import open_term

from leaderq.errors import AlreadyStored, ConfigurationError, ConnectionLost, Deposed, NoNode
from leaderq.kafka.clients.consumer import ConsumerClient, KafkaAway
from leaderq.kafka.record import Partition, Record
from leaderq.kafka.stores.database_offsets import DatabaseOffsets
from leaderq.kafka.stores.offset_store import ExternalOffsets, checked_offsets
from leaderq.kafka.stores.zookeeper_offsets import TopicOffsets, ZooKeeperOffsets
from leaderq.term import OpenTerm, Reason
from leaderq.zookeeper import Create, SetData

NO_CONSUMER = cast("ConsumerClient", None)


def test_nothing_is_loaded_before_the_users_code_has_answered_for_this_term() -> None:
    store = ExternalOffsets(lambda term: {("t", 0): term.number})
    with pytest.raises(KafkaAway, match="term 1"):
        store.load(NO_CONSUMER, open_term(1), 1.0)
    store.begin(open_term(1))
    assert store.load(NO_CONSUMER, open_term(1), 1.0) == {Partition("t", 0): 1}
    with pytest.raises(KafkaAway, match="term 2"):
        store.load(NO_CONSUMER, open_term(2), 1.0)


def test_a_drain_made_again_within_a_term_reads_on_after_what_was_committed_since() -> None:
    store = ExternalOffsets(lambda term: {("t", 0): 5, ("t", 1): 7})
    store.begin(open_term(7))
    assert store.commit(NO_CONSUMER, open_term(7), {Partition("t", 0): 9}).done(0)
    assert store.load(NO_CONSUMER, open_term(7), 1.0) == {
        Partition("t", 0): 9,
        Partition("t", 1): 7,
    }


def test_the_next_term_asks_again_and_forgets_what_the_former_committed() -> None:
    store = ExternalOffsets(lambda term: {("t", 0): 5})
    store.begin(open_term(1))
    store.commit(NO_CONSUMER, open_term(1), {Partition("t", 0): 9})
    store.close()
    store.begin(open_term(2))
    store.commit(NO_CONSUMER, open_term(1), {Partition("t", 0): 100})
    assert store.load(NO_CONSUMER, open_term(2), 1.0) == {Partition("t", 0): 5}


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (None, "NoneType"),
        ([(("t", 0), 1)], "list"),
        ({"t": 1}, "'t'"),
        ({("t", "0"): 1}, "('t', '0')"),
        ({("t", -1): 1}, "('t', -1)"),
        ({("t", 0, 1): 1}, "('t', 0, 1)"),
        ({("t", 0): -1}, "-1"),
        ({("t", 0): None}, "None"),
        ({("t", 0): 1.5}, "1.5"),
        ({("t", 0): True}, "True"),
    ],
)
def test_an_unusable_answer_is_refused_with_the_value_and_the_place(
    answer: Any, named: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        checked_offsets(answer, "Clicks")
    assert named in str(refused.value)
    assert "'load_offsets' of Clicks" in str(refused.value)


# -- offsets in ZooKeeper, with a session and a term that the test answers for

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


# -- offsets in SQLite files: a zombie and its successor, and every way in which a connection may


def records(first: int, last: int, partition: int = 0, topic: str = "t") -> list[Record]:
    return [
        Record(topic, partition, offset, -1, None, b"%d" % offset) for offset in range(first, last)
    ]


def write(store: DatabaseOffsets, rows: list[Record], term: OpenTerm) -> None:
    with store.transaction(rows, term) as cursor:
        cursor.executemany("INSERT INTO results VALUES (?)", [(row.offset,) for row in rows])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "results.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE results (number INTEGER)")
    return path


@pytest.fixture
def a_store(path: Path) -> Iterator[Callable[..., DatabaseOffsets]]:
    made: list[DatabaseOffsets] = []

    def make(career: str = "c", **options: Any) -> DatabaseOffsets:
        options = {"timeout": 0.2, **options}
        made.append(DatabaseOffsets(lambda: sqlite3.connect(path, **options), career=career))
        made[-1].create_table()
        return made[-1]

    yield make
    for store in made:
        store.close()


def results(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT number FROM results ORDER BY rowid")]


CONTROLS: list[dict[str, Any]] = [{}, {"isolation_level": None}, {"isolation_level": "IMMEDIATE"}]
if sys.version_info >= (3, 12):
    CONTROLS += [{"autocommit": True}, {"autocommit": False}]


@pytest.mark.parametrize("options", CONTROLS, ids=str)
def test_results_and_offsets_are_stored_together_however_the_connection_is_set(
    a_store: Callable[..., DatabaseOffsets], path: Path, options: dict[str, Any]
) -> None:
    store, term = a_store(**options), open_term(1)
    assert store.load(term) == {}
    write(store, [*records(0, 3), *records(5, 6, partition=1)], term)
    with pytest.raises(ZeroDivisionError), store.transaction(records(3, 5), term) as cursor:
        cursor.execute("INSERT INTO results VALUES (99)")
        raise ZeroDivisionError
    write(store, records(3, 5), term)
    assert results(path) == [0, 1, 2, 5, 3, 4]
    assert a_store().load(open_term(2)) == {Partition("t", 0): 5, Partition("t", 1): 6}


@pytest.mark.parametrize("options", CONTROLS, ids=str)
def test_a_zombie_is_refused_whole_once_its_successor_has_loaded(
    a_store: Callable[..., DatabaseOffsets], path: Path, options: dict[str, Any]
) -> None:
    zombie, old, successor, new = a_store(**options), open_term(1), a_store(**options), open_term(2)
    zombie.load(old)
    write(zombie, records(0, 2), old)
    assert successor.load(new) == {Partition("t", 0): 2}
    with pytest.raises(Deposed) as refused:
        write(zombie, records(2, 9), old)
    assert refused.value.reason is Reason.FENCED
    assert old.ending.is_set()
    assert old.reason is Reason.FENCED
    write(successor, records(2, 3), new)
    assert results(path) == [0, 1, 2]


def test_a_successor_waits_for_the_open_transaction_and_an_impatient_one_hears_the_drivers_error(
    a_store: Callable[..., DatabaseOffsets], path: Path
) -> None:
    zombie, old, successor = a_store(), open_term(1), a_store()
    zombie.load(old)
    with zombie.transaction(records(0, 2), old) as cursor:
        cursor.execute("INSERT INTO results VALUES (0)")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            successor.load(open_term(2))
    assert successor.load(open_term(2)) == {Partition("t", 0): 2}
    assert results(path) == [0]


def test_a_batch_stored_by_a_try_whose_answer_was_lost_is_not_stored_again(
    a_store: Callable[..., DatabaseOffsets], path: Path
) -> None:
    store, term = a_store(), open_term(1)
    store.load(term)
    write(store, records(0, 4), term)
    with pytest.raises(AlreadyStored, match=r"t-0: .* offset 4, .* starts at 0") as refused:
        write(store, records(0, 4), term)
    assert (refused.value.stored, refused.value.first) == (4, 0)
    # a gap is not a repetition: compaction, or markers of transactions
    write(store, records(7, 8), term)
    assert results(path) == [0, 1, 2, 3, 7]


def test_a_given_connection_is_used_and_left_open_and_what_was_left_undone_on_it_is_rolled_back(
    path: Path,
) -> None:
    with closing(sqlite3.connect(path)) as connection:
        store = DatabaseOffsets(connection, career="c")
        store.create_table()
        connection.execute("INSERT INTO results VALUES (99)")
        store.load(open_term(1))
        write(store, records(0, 1), open_term(1))
        store.close()
        assert connection.execute("SELECT number FROM results").fetchall() == [(0,)]


def test_a_block_that_commits_by_itself_is_told_so(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        store = DatabaseOffsets(connection, career="c")
        store.create_table()
        store.load(open_term(1))
        with (
            pytest.raises(ConfigurationError, match="inside the 'with' block"),
            store.transaction(records(0, 1), open_term(1)),
        ):
            connection.commit()
        assert store.load(open_term(1)) == {}


@pytest.mark.parametrize("name", ["", "1t", "a b", "a;drop", "a.b.c", "a'", 'a"b"', "tä"])
def test_a_table_name_that_would_need_quoting_is_refused_with_its_value(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a table") as refused:
        DatabaseOffsets(lambda: None, career="c", table=name)
    assert repr(name) in str(refused.value)
