"""What a zombie and its successor see of each other in a real PostgreSQL, at every level."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from database_contract import DatabaseOffsetsContract, records
from fake_career import FakeCareer, a_handler
from postgres import Database
from terms import open_term

from leaderq.errors import Deposed
from leaderq.kafka.handling.on_error import dead_letter, retry
from leaderq.kafka.record import Batch, Partition
from leaderq.kafka.stores.database_offsets import DatabaseOffsets
from leaderq.term import Reason
from leaderq.testing import eventually


@pytest.fixture
def connect(postgres):
    return postgres.connect


@pytest.fixture
def results(postgres):
    with postgres.connect(autocommit=True) as connection:
        connection.execute("CREATE TABLE results (number BIGINT, id BIGSERIAL)")

    def read() -> list[int]:
        with postgres.connect() as connection:
            return [row[0] for row in connection.execute("SELECT number FROM results ORDER BY id")]

    return read


LEVELS: dict[str, dict[str, Any]] = {
    "read committed": {},
    "autocommit": {"autocommit": True},
    "repeatable read": {"options": "-c default_transaction_isolation=repeatable\\ read"},
    "serializable": {"options": "-c default_transaction_isolation=serializable"},
}


class TestDatabaseOffsets(DatabaseOffsetsContract):
    mark = "%s"

    @pytest.fixture
    def mapping_rows(self):
        return {"row_factory": pytest.importorskip("psycopg.rows").dict_row}

    @pytest.fixture(params=LEVELS)
    def options(self, request):
        return LEVELS[request.param]

    @pytest.mark.parametrize("ends", ["commit", "roll back"])
    def test_a_successor_waits_for_the_transaction_under_way_and_sees_how_it_ended(
        self, a_store, postgres, results, ends
    ):
        zombie, old, successor = a_store(), open_term(1), a_store()
        zombie.load(old)
        with ThreadPoolExecutor(1) as pool:
            with suppress(ZeroDivisionError), zombie.transaction(records(0, 2), old) as cursor:
                cursor.execute("INSERT INTO results (number) VALUES (0)")
                loading = pool.submit(successor.load, open_term(2))
                eventually(lambda: waiting(postgres) == 1, timeout_s=20)
                assert not loading.done()
                if ends == "roll back":
                    raise ZeroDivisionError
            assert loading.result(20) == ({Partition("t", 0): 2} if ends == "commit" else {})
        assert results() == ([0] if ends == "commit" else [])
        with pytest.raises(Deposed):
            self.write(zombie, records(2, 3), old)

    def test_a_leader_frozen_in_mid_transaction_is_ended_by_the_server_and_deposed_when_it_thaws(
        self, a_store, results
    ):
        # Longer than the leader may be without a processor before it is to be taken for frozen.
        zombie, old = a_store(options="-c idle_in_transaction_session_timeout=5s"), open_term(1)
        zombie.load(old)
        with (
            ThreadPoolExecutor(1) as pool,
            pytest.raises(Deposed) as deposed,
            zombie.transaction(records(0, 2), old) as cursor,
        ):
            cursor.execute("INSERT INTO results (number) VALUES (0)")
            # the leader does nothing meanwhile, as if frozen
            assert pool.submit(lambda: a_store().load(open_term(2))).result(40) == {}
            old.wind_up(Reason.SESSION)
            cursor.execute("INSERT INTO results (number) VALUES (1)")
        assert "idle-in-transaction timeout" in str(deposed.value.__cause__)
        assert results() == []

    def test_a_commit_that_the_server_carried_out_and_did_not_answer_buries_nothing(
        self, a_store, postgres, results
    ):
        """The third COMMIT is carried out, then the connection breaks."""
        term, commits = open_term(7), iter([False, False, True])
        store = a_store()
        store.load(term)

        def handle(rows: Any, _term: object) -> None:
            if next(commits, False):
                store._database.connection.commit = lambda: break_after_commit(store)
            self.write(store, list(rows), term)

        career = FakeCareer()
        career.handle = handle
        handler = a_handler(career, retry(2, backoff_s=0, then=dead_letter()))
        for at in range(0, 250, 50):
            assert handler.work(Batch({Partition("t", 0): records(at, at + 50)}), term)
        assert (career.letters, career.committed) == ([], {Partition("t", 0): 250})
        assert results() == list(range(250))


def waiting(postgres: Database) -> int:
    with postgres.connect() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND"
            " wait_event_type = 'Lock'"
        ).fetchone()
    return row[0]


def break_after_commit(store: DatabaseOffsets) -> None:
    import psycopg

    connection = store._database.connection
    connection.execute("COMMIT")
    connection.close()
    raise psycopg.OperationalError("the connection is lost")
