"""Offsets that the user keeps, those in znodes, and those in a database."""

from __future__ import annotations

import re
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from functools import partial
from typing import Any, cast

import pytest
from database_contract import DatabaseOffsetsContract, records
from fake_career import A
from terms import open_term

from leaderq import errors
from leaderq.base import clock
from leaderq.errors import AlreadyStored, ConfigurationError
from leaderq.kafka.clients.consumer import ConsumerClient, EffectRefused, KafkaAway
from leaderq.kafka.groups import OffsetAdmin
from leaderq.kafka.handling.on_error import is_about_records
from leaderq.kafka.record import Partition
from leaderq.kafka.stores import open_store
from leaderq.kafka.stores.database_offsets import DatabaseOffsets
from leaderq.kafka.stores.external_offsets import ExternalOffsets
from leaderq.kafka.stores.offset_store import StoreContext, checked_offsets
from leaderq.kafka.stores.zookeeper_offsets import TopicOffsets, ZooKeeperOffsets
from leaderq.zookeeper import Create, Delete, SetData

NO_CONSUMER = cast("ConsumerClient", None)


def test_the_users_code_is_asked_once_a_term_and_what_was_committed_since_counts():
    first, second, t = open_term(1), open_term(2), Partition("t", 0)
    asked = StoreContext("c", "/", load_offsets=lambda term: {("t", 0): term.number, ("t", 1): 7})
    store = ExternalOffsets()
    open_store(store, asked)
    with pytest.raises(KafkaAway, match="term 1"):
        store.load(NO_CONSUMER, first, 1.0)
    store.begin(first)
    assert store.load(NO_CONSUMER, first, 1.0) == {t: 1, Partition("t", 1): 7}
    assert store.commit(NO_CONSUMER, first, {t: 9}).done(0)
    assert store.load(NO_CONSUMER, first, 1.0)[t] == 9
    with pytest.raises(KafkaAway, match="term 2"):
        store.load(NO_CONSUMER, second, 1.0)
    store.close()
    store.begin(second)
    store.commit(NO_CONSUMER, first, {t: 100})
    assert store.load(NO_CONSUMER, second, 1.0)[t] == 2


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ([(("t", 0), 1)], "list"),
        *(({where: 1}, repr(where)) for where in ["t", ("t", "0"), ("t", -1), ("t", 0, 1)]),
        *(({("t", 0): offset}, repr(offset)) for offset in [-1, None, 1.5, True]),
    ],
)
def test_an_unusable_answer_is_refused_with_the_value_and_the_place(answer, named):
    with pytest.raises(ConfigurationError, match=re.escape(named)) as refused:
        checked_offsets(answer, "'load_offsets' of Clicks")
    assert "'load_offsets' of Clicks" in str(refused.value)


# -- offsets in ZooKeeper, with a session and a term that the test answers for

USERS = Create("/user")


@pytest.fixture
def term(servers):
    return servers.term(3)


@pytest.fixture
def store(servers):
    made = ZooKeeperOffsets()
    open_store(made, StoreContext("c", "/", folder="/o", session=servers))
    yield made
    made.close()


def commit(store: Any, term: Any, offset: int) -> None:
    assert store.commit(None, term, {A: offset}).done(30)


def test_operations_added_while_a_commit_is_under_way_go_with_the_next(store, term, servers):
    later = Create("/later")
    store.add([USERS])
    servers.during = [lambda: store.add([later])]
    commit(store, term, 5)
    commit(store, term, 6)
    assert [write[1:] for write in servers.writes] == [(USERS,), (later,)]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [Create("/in-a-list")],
        Create("orders"),
        Create("/orders/"),
        Delete("/orders//7"),
        Create("/text", cast("bytes", "text")),
        SetData("/one", b"", cast("int", "1")),
        SetData("/much", b"", 2**31),
    ],
    ids=repr,
)
def test_an_operation_that_cannot_be_sent_is_refused_where_it_is_added(store, term, servers, wrong):
    with pytest.raises(errors.ZooKeeperError, match="cannot be written with offsets") as refused:
        store.add([USERS, wrong])
    assert is_about_records(refused.value)
    store.add([Create("/jobs/", sequential=True)])
    commit(store, term, 5)
    assert [write[1:] for write in servers.writes] == [(Create("/jobs/", sequential=True),)]


def test_positions_are_written_without_the_operations_of_the_batch_in_hand(store, term, servers):
    store.add([USERS])
    assert store.commit_positions(None, term, {A: 3}).done(30)
    commit(store, term, 5)
    assert [write[1:] for write in servers.writes] == [(), (USERS,)]


def test_what_a_former_term_left_goes_with_no_commit_of_the_next(store, term, servers):
    store.add([USERS])
    store.begin(term)
    commit(store, term, 5)
    assert [write[1:] for write in servers.writes] == [()]


@pytest.mark.parametrize("has_happened", [True, False])
def test_a_write_whose_answer_was_lost_is_done_once(store, term, servers, has_happened):
    commit(store, term, 5)
    lost = errors.ConnectionLost("no answer")
    servers.errors, servers.lags = [(lost, has_happened)], True
    store.add([USERS])
    servers.get_errors = [lost]
    commit(store, term, 6)
    commit(store, term, 7)
    kept = TopicOffsets.decoded(servers.data["/o/t"], "/o/t")
    assert (kept.offsets, kept.term, servers.versions["/user"]) == ({"0": 7}, 3, 0)


def test_the_write_of_a_store_that_hung_in_the_same_term_is_not_taken_for_ones_own(
    servers, term, monkeypatch
):
    for now_s, offset in ((100.0, 5), (130.0, 6)):
        with monkeypatch.context() as then:
            then.setattr(clock, "now_s", lambda: now_s)  # noqa: B023 - called at once
            store = ZooKeeperOffsets()
        store.attach(StoreContext("c", "/", folder="/o", session=servers))
        commit(store, term, offset)
        store.close()
    assert TopicOffsets.decoded(servers.data["/o/t"], "/o/t").offsets == {"0": 6}


def test_a_znode_that_was_written_by_hand_keeps_what_was_written_of_other_partitions(
    store, term, servers
):
    commit(store, term, 5)
    servers.set("/o/t", TopicOffsets({"0": 4, "7": 9}, 3, "by hand").encoded(), version=-1)
    commit(store, term, 6)
    kept = TopicOffsets.decoded(servers.data["/o/t"], "/o/t")
    assert (kept.offsets, kept.term) == ({"0": 6, "7": 9}, 3)


@pytest.mark.parametrize("has_led", [False, True])
@pytest.mark.parametrize("begins", [False, True])
def test_offsets_are_not_set_beside_a_leader_that_begins(store, servers, term, has_led, begins):
    if has_led:
        servers.create("/term", b"1")
        commit(store, term, 5)
    version = 0 if has_led else None
    admin = OffsetAdmin("k:1", "g", "c", {}, "", ("t",), "/term", version, is_led=False)
    write = SetData("/term", b"2") if has_led else Create("/term", b"1")
    servers.during = [partial(servers.write, [write])] if begins else []
    refused = pytest.raises(errors.RequestRefused, match="somebody began to lead")
    with refused if begins else nullcontext():
        store.put(admin, {A: 9})
    assert store.look_up(admin).get(A) == (9 if not begins else 5 if has_led else None)


ABOUT_IT = errors.NodeExists, errors.NoNode, errors.BadVersion, errors.NotEmpty
REFUSED_BY_SERVER: list[Exception] = [each("no", path="/user", index=1) for each in ABOUT_IT]
REFUSED_BY_SERVER += [errors.TooLarge("the multi", size=2_000_000, limit=1_000_000)]
NOT_ABOUT_IT = [errors.NoPermission("no right", path="/user", index=1)]


@pytest.mark.parametrize("error", [*REFUSED_BY_SERVER, *NOT_ABOUT_IT], ids=repr)
def test_an_operation_of_the_users_that_is_refused_is_an_effect_refused_and_nothing_else_is(
    store, term, servers, error
):
    servers.errors = [(error, False)]
    store.add([USERS])
    if error in NOT_ABOUT_IT:
        with pytest.raises(type(error)):
            commit(store, term, 5)
        return
    with pytest.raises(EffectRefused) as refused:
        commit(store, term, 5)
    assert refused.value.error is error
    store.undo()
    commit(store, term, 5)
    assert [write[1:] for write in servers.writes] == [(USERS,), ()]


def test_offsets_whose_znode_was_deleted_are_written_again(store, term, servers):
    commit(store, term, 5)
    del servers.data["/o/t"]
    store.add([USERS])
    commit(store, term, 6)
    assert [type(write[0]) for write in servers.writes] == [Create, SetData, Create]
    assert [write[1:] for write in servers.writes] == [(), (USERS,), (USERS,)]


# -- offsets in SQLite files: what is its own, beside the contract


@pytest.fixture
def connect(tmp_path):
    # other threads than its own may close it when the test ends
    few_s = {"timeout": 0.2, "check_same_thread": False}
    return lambda **options: sqlite3.connect(tmp_path / "results.sqlite3", **few_s | options)


@pytest.fixture
def results(connect):
    with closing(connect()) as connection:
        connection.execute("CREATE TABLE results (number INTEGER)")

    def read() -> list[int]:
        with closing(connect()) as connection:
            found = connection.execute("SELECT number FROM results ORDER BY rowid")
            return [row[0] for row in found]

    return read


CONTROLS: list[dict[str, Any]] = [{}, {"isolation_level": None}, {"isolation_level": "IMMEDIATE"}]
if sys.version_info >= (3, 12):
    CONTROLS += [{"autocommit": True}, {"autocommit": False}]


class MappingRows(sqlite3.Connection):
    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.row_factory = lambda cursor, row: {
            column[0]: value for column, value in zip(cursor.description, row, strict=True)
        }


class TestDatabaseOffsets(DatabaseOffsetsContract):
    mark = "?"

    @pytest.fixture
    def mapping_rows(self):
        return {"factory": MappingRows}

    @pytest.fixture(params=CONTROLS, ids=str)
    def options(self, request):
        return {**request.param, "timeout": 20}

    def test_a_successor_waits_for_the_open_transaction_and_an_impatient_one_hears_the_error(
        self, a_store, results
    ):
        zombie, old, successor = a_store(), open_term(1), a_store()
        zombie.load(old)
        with zombie.transaction(records(0, 2), old) as cursor:
            cursor.execute("INSERT INTO results VALUES (0)")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                successor.load(open_term(2))
        assert successor.load(open_term(2)) == {Partition("t", 0): 2}
        assert results() == [0]

    def test_a_batch_stored_by_a_try_whose_answer_was_lost_is_not_stored_again(
        self, a_store, results
    ):
        store, term = a_store(), open_term(1)
        store.load(term)
        self.write(store, records(0, 4), term)
        with pytest.raises(AlreadyStored, match=r"t-0: .* offset 4, .* starts at 0") as refused:
            self.write(store, records(0, 4), term)
        assert (refused.value.stored, refused.value.first) == (4, 0)
        # a gap is not a repetition: compaction, or markers of transactions
        self.write(store, records(7, 8), term)
        assert results() == [0, 1, 2, 3, 7]

    def test_a_transaction_that_ends_inside_its_block_is_refused(self, a_store, options):
        store, term = a_store(**options), open_term(1)
        store.load(term)
        with (
            pytest.raises(ConfigurationError, match="inside the 'with' block"),
            store.transaction(records(1, 2), term) as cursor,
        ):
            cursor.execute("COMMIT")
        assert store.load(term) == {}

    def test_an_error_after_the_end_of_the_term_says_that_it_is_over(self, connect):
        term = open_term(1)

        def fail() -> Any:
            term.wind_up(errors.Reason.LEASE)
            raise OSError("no route")

        with pytest.raises(errors.Deposed) as over:
            DatabaseOffsets(fail, career="c").load(term)
        assert isinstance(over.value.__cause__, OSError)

    def test_a_connection_in_place_of_a_function_is_refused(self, connect):
        with closing(connect()) as connection:
            for wrong in (connection, "a.sqlite3"):
                with pytest.raises(ConfigurationError, match="give one, such as lambda"):
                    DatabaseOffsets(wrong, career="c")

    def test_a_function_that_opens_no_connection_of_its_own_is_refused(self, connect):
        with closing(connect()) as shared:
            store = DatabaseOffsets(lambda: shared, career="c")
            store.create_table()
            for attempt in (partial(store.load, open_term(1)), store.create_table):
                with pytest.raises(ConfigurationError, match=r"again, .* must open a new conn"):
                    attempt()

        class Asynchronous(sqlite3.Connection):
            async def commit(self) -> None:  # type: ignore[override]
                """As aiosqlite's."""

        store = DatabaseOffsets(lambda: connect(factory=Asynchronous), career="c")
        with pytest.raises(ConfigurationError, match=r"commit\(\) of the database connection ret"):
            store.create_table()

    def test_a_worker_that_hangs_in_its_block_neither_stops_the_next_term_nor_commits_in_it(
        self, a_store, results
    ):
        store, old, new = a_store(timeout=20), open_term(1), open_term(2)
        store.load(old)
        inside, may_go_on = threading.Event(), threading.Event()

        def hang() -> None:
            with store.transaction(records(0, 2), old) as cursor:
                cursor.execute("INSERT INTO results VALUES (0)")
                inside.set()
                may_go_on.wait(30)

        with ThreadPoolExecutor(1) as pool:
            hanging = pool.submit(hang)
            assert inside.wait(30)
            assert store.load(new) == {}
            self.write(store, records(0, 1), new)
            assert not hanging.done()
            may_go_on.set()
            assert hanging.exception(30) is not None
        assert results() == [0]
        assert store.load(open_term(3)) == {Partition("t", 0): 1}

    def test_what_the_function_that_connects_has_begun_is_committed(
        self, connect, results, options
    ):
        def connected() -> Any:
            made = connect(**options)
            made.execute("INSERT INTO results VALUES (99)")
            return made

        store, term = DatabaseOffsets(connected, career="c"), open_term(1)
        store.create_table()
        self.write(store, records(0, 1), term)
        store.close()
        assert results() == [99, 0]


@pytest.mark.parametrize("name", ["", "1t", "a b", "a;drop", "a.b.c", "a'", 'a"b"', "tä"])
def test_a_table_name_that_would_need_quoting_is_refused_with_its_value(name):
    with pytest.raises(ConfigurationError, match=f"{re.escape(repr(name))}.*cannot be a table"):
        DatabaseOffsets(lambda: None, career="c", table=name)
