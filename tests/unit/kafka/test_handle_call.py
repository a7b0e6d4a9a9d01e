"""Where ``produce`` and ``write_with_offsets`` are accepted: within a call of ``handle``."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest

from leaderq.errors import ConfigurationError
from leaderq.kafka import KafkaLeaderCareer, Record
from leaderq.term import Term
from leaderq.testing import Driven, drive, records
from leaderq.zookeeper import Create


class Adding(KafkaLeaderCareer):
    topics = "orders"
    max_records = 1

    def add(self, what: bytes) -> None:
        if self.offsets == "transaction":
            self.produce("invoices", what)
        else:
            self.write_with_offsets(Create("/effects/e-", what, sequential=True))

    def handle(self, records: Sequence[Record], term: Term) -> None:
        for record in records:
            self.add(record.value or b"")


@pytest.fixture(params=["transaction", "zookeeper"])
def driven(request):
    def drive_it(**methods: Any) -> Driven:
        career = type("Added", (Adding,), {"offsets": request.param, **methods})()
        given = [*records("orders", [b"0", b"1"]), *records("orders", [b"2"], partition=1)]
        return drive(career, given, may_fail=True)

    return drive_it


def values(driven: Driven) -> list[bytes | None]:
    return [one.value for one in driven.produced] + [
        getattr(one, "data", None) for one in driven.written
    ]


def on_another_thread(function: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(30)


@pytest.mark.parametrize("where", ["inaugurate", "handOver"])
def test_outside_handle_it_is_an_error_at_once(driven, where):
    found = driven(**{where: lambda self, _term: self.add(b"I lead")})
    assert isinstance(found.error, ConfigurationError)
    assert "outside a call of handle" in str(found.error)
    assert b"I lead" not in values(found)


def test_a_thread_that_handle_left_behind_is_refused(driven):
    told: list[str] = []
    left_behind: list[Callable[[], object]] = []

    def handle(self: Adding, records: Sequence[Record], term: Term) -> None:
        for late in left_behind:  # while the next call of handle runs
            with pytest.raises(ConfigurationError) as refused:
                on_another_thread(late)
            told.append(str(refused.value))
        self.add(records[0].value or b"")
        context = copy_context()
        left_behind[:] = [lambda: self.add(b"late"), lambda: context.run(self.add, b"late")]

    found = driven(handle=handle)
    assert values(found) == [b"0", b"1", b"2"]
    assert ["after its call" in one for one in told] == [False, True] * 2


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("how", ["thread", "asyncio"])
def test_a_calls_context_is_accepted_wherever_it_is_carried(driven, how, workers):
    def handle(self: Adding, records: Sequence[Record], term: Term) -> None:
        async def add() -> None:
            for record in records:
                await asyncio.to_thread(self.add, record.value or b"")

        if how == "asyncio":
            asyncio.run(add())
            return
        context = copy_context()
        for record in records:
            on_another_thread(partial(context.run, self.add, record.value or b""))

    found = driven(handle=handle, workers=workers, max_records=10)
    assert sorted(values(found)) == [b"0", b"1", b"2"]


def test_a_thread_of_the_call_without_its_context_is_told_how_to_carry_it(driven):
    def handle(self: Adding, records: Sequence[Record], term: Term) -> None:
        on_another_thread(lambda: self.add(b"0"))

    found = driven(handle=handle, on_error="skip")
    assert "contextvars.copy_context().run" in str(found.error)
    assert (values(found), found.skipped) == ([], [])


def test_a_topic_that_produces_does_not_name_is_refused_where_it_is_written():
    career = type("Typing", (Adding,), {"offsets": "transaction", "produces": "invoice"})()
    found = drive(career, records("orders", [b"0"]), may_fail=True)
    assert isinstance(found.error, ConfigurationError)
    assert "names the topic 'invoices', and 'produces' has 'invoice'" in str(found.error)
    career = type("Correct", (Adding,), {"offsets": "transaction", "produces": ["invoices"]})()
    assert drive(career, records("orders", [b"0"])).produced[0].value == b"0"
    with pytest.raises(ConfigurationError, match="'produces' of Empty"):
        drive(type("Empty", (Adding,), {"produces": [""]})(), [])


FORKING = """
import os, sys
from leaderq.kafka import KafkaLeaderCareer, retry
from leaderq.testing import drive, records

class Forking(KafkaLeaderCareer):
    topics, offsets, on_error = "orders", "transaction", retry(2, 0.0)

    def handle_record(self, record, term):
        os.write(1, f"handle {record.offset} {os.getpid() == ours}\\n".encode())
        if child := record.offset == 0 and os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os.write(1, f"ended {status}\\n".encode())
        elif os.getpid() != ours and sys.argv[1] == "exit":
            sys.exit(3)
        elif os.getpid() != ours and sys.argv[1] == "produce":
            self.produce("invoices", b"of the child's")
        elif os.getpid() != ours:
            raise KeyError("of the child's")
        self.produce("invoices", record.value)

ours = os.getpid()
driven = drive(Forking(), records("orders", [b"0", b"1"]))
os.write(1, f"produced {len(driven.produced)} {os.getpid() == ours}\\n".encode())
"""


@pytest.mark.parametrize(("how", "status"), [("exit", 3), ("produce", 1), ("raise", 1)])
def test_a_forked_child_that_comes_back_from_handle_ends_and_adds_nothing(how, status):
    done = subprocess.run(
        [sys.executable, "-c", FORKING, how], capture_output=True, text=True, check=True
    )
    told = ["handle 0 True", f"ended {status}", "handle 1 True", "produced 2 True", ""]
    assert done.stdout.split("\n") == told
