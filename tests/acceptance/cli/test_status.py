"""``leaderq status`` for careers that drain Kafka: fresh reports, old ones, those of an earlier
term, and what is none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from leaderq.election.layout import Layout
from leaderq.election.observer import Observer
from leaderq.kafka.consuming.report import DrainReport, PartitionLag, encode

Say = Callable[..., None]


@pytest.fixture
def leader(lead) -> Any:
    """A process that leads, in term 1."""
    return lead("a")


@pytest.fixture
def say(session, leader, znode_root) -> Say:
    """Put a report where leaders put theirs."""
    path = Layout(znode_root, "ad-billing").progress

    # Fresh ones are of a time to come: they stay fresh, however long the command takes to begin.
    def put(data: bytes | None = None, **fields: Any) -> None:
        rows = {"t-10": PartitionLag(10, 10, 0), "t-9": PartitionLag(5, 125, 120)}
        values: dict[str, Any] = {"term": 1, "partitions": rows, "rate_per_s": 40.0}
        values |= {"arriving_per_s": 20.0, "catch_up_s": 6.0}
        report = DrainReport(at=time.time() + 300.0, **{**values, **fields})
        session.ensure_path(path)
        session.set(path, encode(report) if data is None else data)

    return put


@pytest.fixture
def status(shell, given) -> Callable[..., Any]:
    def run(*arguments: str) -> Any:
        done = shell("status", *arguments, **given)
        assert done.code == 0, done.err
        return done

    return run


def drain_cells(done: Any) -> list[str]:
    """What stands below LAG, RATE and CATCH-UP in the first row."""
    heading, row = done.lines[:2]
    starts = [heading.index(name) for name in ("LAG", "RATE", "CATCH-UP")]
    return [row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]


def test_lag_rate_and_time_to_catch_up_stand_behind_the_other_columns(say, status):
    """What is not known, or will not come, is said."""
    done = {"t-0": PartitionLag(7, 7, 0)}
    held = {"t-0": PartitionLag(7, 14, 7, blocked_by_transaction=7)}
    tables: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["120", "40/s", "6 s"]),
        ({"rate_per_s": 5.25, "catch_up_s": None}, ["120", "5.2/s", "not at this rate"]),
        ({"rate_per_s": None, "catch_up_s": None}, ["120", "-", "-"]),
        ({"rate_per_s": 9000.0, "catch_up_s": None}, ["120", "9000/s", "keeps up"]),
        ({"partitions": done, "rate_per_s": 0.0, "catch_up_s": 0.0}, ["0", "0.0/s", "keeps up"]),
        ({"partitions": held}, ["7", "40/s", "waits for a transaction"]),
        ({"catch_up_s": 7265.0}, ["120", "40/s", "2 h 1 m"]),
        ({"held_up": "t-9@5: OSError: away"}, ["120", "40/s", "held up"]),
    ]
    for fields, cells in tables:
        say(**fields)
        assert drain_cells(status()) == cells
    assert status().lines[0].split()[-4:] == ["CANDIDATES", "LAG", "RATE", "CATCH-UP"]
    rows = [line.split() for line in status("--partitions").lines[1:]]
    assert [(row[1], row[3]) for row in rows] == [("t-9", "125"), ("t-10", "10")]


def test_a_report_of_nobody_is_old_and_what_is_none_is_named_and_hides_nothing_else(
    say, status, leader
):
    say(b"not a report")
    done = status()
    assert done.lines[1].split()[:2] == ["ad-billing", "a"]
    assert "ad-billing/progress holds b'not a report'" in done.err
    assert "Traceback" not in done.err
    say()
    (view,) = status("--json").rows
    assert (view["drain"]["fresh"], view["drain"]["lag"]) == (True, 120)
    leader.terminate()
    assert leader.wait() == 0
    (view,) = status("--json").rows
    assert (view["leader"], view["drain"]["fresh"]) == (None, False)


# -- a career whose work fails: why nobody leads it; and its end by forget

COOL_OFF = ("--cool-off-s", "600", "--yield-s", "600")


def test_a_career_without_a_leader_says_what_failed_who_cools_off_and_until_when(
    shell, stand, given
):
    poisoned = []  # two candidates that have failed a term each and cool off
    for name in "ab":
        poisoned.append(stand(name, "billing:Poison", *COOL_OFF))
        poisoned[-1].wait_for("cooling_off")
    done = shell("status", "--career", "poison", **given)
    assert done.code == 5
    last, *waiting = done.lines[2:]
    assert re.fullmatch(
        r"poison: term 2 of b on \S+ ended \d+ \w( \d+ s)? ago \(failed\): ValueError: bad"
        r" record\\x1b\[31m",
        last,
    )
    cool_off = re.compile(r"poison: ([ab]) on \S+ cools off, and stands again at [\d:]+ \(in .*\)")
    assert sorted(found[1] for line in waiting if (found := cool_off.fullmatch(line))) == ["a", "b"]
    # not code 5: which career should have a leader was not said
    (view,) = shell("status", "--json", **given).rows
    assert (view["leader"], view["error"]) == (None, "ValueError: bad record\x1b[31m")
    assert {each["candidate"]: each["pid"] for each in view["cooling_off"]} == {
        name: each.worker_pid for name, each in zip("ab", poisoned, strict=True)
    }
    cooling = shell("members", "--json", **given).rows
    assert sorted((each["candidate"], each["role"], each["turn"]) for each in cooling) == [
        (name, "cooling off", None) for name in "ab"
    ]
    forget = shell("forget", "--career", "poison", "--yes", **given)
    forget.assert_refused("'poison' is in use by candidate", code=1)
    table = shell("history", "--career", "poison", **given).lines
    assert [line.split()[:2] for line in table] == [["TERM", "LEADER"], ["2", "b"], ["1", "a"]]
    assert "failed: ValueError: bad record" in table[2]


def test_a_career_is_forgotten_when_nobody_stands_for_it(ask, lead, stand):
    leader = lead("a")
    assert ask("forget").code == 2
    ask("forget", "--yes").assert_refused("'ad-billing' is in use by candidate 'a'", code=1)
    leader.terminate()
    assert leader.wait() == 0
    assert ask("forget", "--yes").code == 0
    assert ask("status").code == 2
    stand("b").wait_for("stage_began", stage="execution", term=1)


def test_one_damaged_record_hides_neither_itself_nor_the_other_careers(
    session, znode_root, shell, status, leader, given
):
    session.set(Layout(znode_root, "ad-billing").control, b"{")
    done = status("--json")
    (view,) = done.rows
    assert view["leader"] == "a"
    assert "the operators' wishes are lost" in done.err
    assert Observer(session, "ad-billing", root=znode_root).view().problem == view["why"]
    assert "the operators' wishes are lost" in view["why"]
    session.ensure_path(Layout(znode_root, "spoilt").term)
    session.set(Layout(znode_root, "spoilt").term, b"{")
    for verb in ("status", "members"):
        done = shell(verb, "--json", **given)
        assert [one["career"] for one in done.objects(code=1)] == ["ad-billing"]
        assert "leaderq raise-floor" in done.err
