"""What ``DatabaseOffsets`` does in each database: inherit it, with fixtures of the class."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from terms import open_term

from leaderq.errors import AlreadyStored, ConfigurationError, Deposed
from leaderq.kafka.record import Partition, Record
from leaderq.kafka.stores.database_offsets import DatabaseOffsets
from leaderq.kafka.stores.handle_call import HandleCall
from leaderq.term import OpenTerm, Reason

WORKERS, BATCHES, RECORDS = 4, 12, 5
AStore = Callable[..., DatabaseOffsets]


def records(first: int, last: int, partition: int = 0) -> list[Record]:
    offsets = range(first, last)
    return [Record("t", partition, offset, -1, None, b"%d" % offset) for offset in offsets]


class DatabaseOffsetsContract:
    """``mark`` is how a statement marks a parameter; ``connect`` opens a connection with options,
    ``options`` are some of them, ``mapping_rows`` those that make mappings of rows, and ``results``
    returns the numbers in a table of that name, in the order in which they came.
    """

    mark: str

    @pytest.fixture
    def a_store(self, connect, results):
        made: list[DatabaseOffsets] = []

        def make(**options: Any) -> DatabaseOffsets:
            made.append(DatabaseOffsets(lambda: connect(**options), career="c"))
            made[-1].create_table()
            return made[-1]

        yield make
        for store in made:
            store.close()

    def write(self, store: DatabaseOffsets, rows: list[Record], term: OpenTerm) -> None:
        with store.transaction(rows, term) as cursor:
            insert = f"INSERT INTO results (number) VALUES ({self.mark})"
            cursor.executemany(insert, [(row.offset,) for row in rows])

    def test_results_and_offsets_are_stored_together_and_a_zombie_is_refused_whole(
        self, a_store, results, options
    ):
        zombie, old = a_store(**options), open_term(1)
        successor, new = a_store(**options), open_term(2)
        assert zombie.load(old) == {}
        self.write(zombie, [*records(0, 3), *records(5, 6, partition=1)], old)
        with pytest.raises(ZeroDivisionError), zombie.transaction(records(3, 5), old) as cursor:
            cursor.execute("INSERT INTO results (number) VALUES (99)")
            raise ZeroDivisionError
        self.write(zombie, records(3, 5), old)
        assert successor.load(new) == {Partition("t", 0): 5, Partition("t", 1): 6}
        with pytest.raises(Deposed) as refused:
            self.write(zombie, records(5, 9), old)
        assert refused.value.reason is old.reason is Reason.FENCED
        assert refused.value.newest == 2
        assert old.ending.is_set()
        self.write(successor, records(5, 6), new)
        assert results() == [0, 1, 2, 5, 3, 4, 5]

    def test_records_may_come_in_any_order(self, a_store, results):
        store, term = a_store(), open_term(1)
        store.load(term)
        self.write(store, [*reversed(records(0, 4)), *records(7, 8, partition=1)], term)
        with pytest.raises(AlreadyStored, match="at offset 4, the batch starts at 3"):
            self.write(store, [*reversed(records(3, 6))], term)
        assert store.load(open_term(2)) == {Partition("t", 0): 4, Partition("t", 1): 8}

    def test_what_a_second_transaction_of_one_call_would_pass_over_is_refused(
        self, a_store, results
    ):
        """As where ``handle`` makes a transaction for each key."""
        store, term = a_store(), open_term(1)
        store.load(term)
        zero, one, two, three = records(0, 4)
        with HandleCall():
            for record in (zero, one):
                self.write(store, [record], term)
            self.write(store, [three], term)
            with pytest.raises(ConfigurationError, match=r"stored offset 4 of t-0, past .* at 2"):
                self.write(store, [two], term)
        with HandleCall(), pytest.raises(AlreadyStored):
            self.write(store, [three], term)
        assert results() == [0, 1, 3]

    def test_rows_may_be_mappings(self, a_store, results, mapping_rows):
        store, term = a_store(**mapping_rows), open_term(1)
        store.load(term)
        self.write(store, records(0, 3), term)
        with pytest.raises(AlreadyStored, match="offset 3"):
            self.write(store, records(0, 3), term)
        assert store.load(term) == {Partition("t", 0): 3}

    def test_workers_have_a_connection_each_and_store_each_record_once(
        self, a_store, connect, options
    ):
        """Each stores its partition's records, each batch after an attempt that fails with half of
        it written.
        """
        with closing(connect()) as connection:
            connection.execute("CREATE TABLE parts (number INTEGER, place INTEGER)")
            connection.commit()
        store, term = a_store(**options), open_term(1)
        store.load(term)
        ready = threading.Barrier(WORKERS)

        def attempt(batch: list[Record], fails: bool) -> None:
            with store.transaction(batch, term) as cursor:
                for at, record in enumerate(batch):
                    if fails and at > len(batch) // 2:
                        raise ZeroDivisionError
                    insert = f"INSERT INTO parts VALUES ({self.mark}, {self.mark})"
                    cursor.execute(insert, (record.partition, record.offset))

        def work(number: int) -> None:
            ready.wait(30)
            for at in range(0, BATCHES * RECORDS, RECORDS):
                batch = records(at, at + RECORDS, number)
                with pytest.raises(ZeroDivisionError):
                    attempt(batch, fails=True)
                attempt(batch, fails=False)

        with ThreadPoolExecutor(WORKERS) as threads:
            list(threads.map(work, range(WORKERS), timeout=60))
        stored = store.load(open_term(2)).items()
        with closing(connect()) as connection:
            rows = [tuple(row) for row in connection.execute("SELECT * FROM parts").fetchall()]
        wanted = [(where.number, offset) for where, end in stored for offset in range(end)]
        assert Counter(rows) == Counter(wanted)
        assert len(rows) == WORKERS * BATCHES * RECORDS
