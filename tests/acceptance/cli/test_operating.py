"""What an operator types, against candidates that really run."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import pty
import re
import signal
import socket
import struct
import termios
import time
from collections.abc import Iterator
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.election.layout import Layout, TermRecord, encode
from leaderq.election.observer import REPAIRED
from leaderq.kafka.consuming.report import DrainReport, PartitionLag
from leaderq.kafka.consuming.report import encode as encode_report
from leaderq.running.guardian import SAME_REQUEST_S
from leaderq.testing.waiting import eventually, patience


def test_status_and_members_show_who_leads_and_who_waits(
    shell, stand, lead, given, znode_root, session
):
    first, second = lead("a"), stand("b")
    path = Layout(znode_root, "ad-billing").processes

    def places():
        names = session.children(path) if session.exists(path) else ()
        return [session.get(f"{path}/{name}")[0] for name in names]

    eventually(lambda: b'"host"' in b"".join(places()))
    (view,) = shell("status", "--career", "ad-billing", "--json", **given).rows
    wanted = {"career": "ad-billing", "leader": "a", "pid": first.worker_pid, "term": 1}
    wanted |= {"stage": "execution", "candidates": ["a", "b"], "paused": False}
    assert {key: view[key] for key in wanted} == wanted
    _, row = shell("status", **given).lines
    assert row.split()[:4] == ["ad-billing", "a", "1", "execution"]
    found = {each["candidate"]: each for each in shell("members", "--json", **given).rows}
    assert {name: each["role"] for name, each in found.items()} == {"a": "leader", "b": "next"}
    assert [found[name]["pid"] for name in "ab"] == [first.worker_pid, second.worker_pid]
    told = {(each["leaderq"], each["career_class"]) for each in found.values()}
    assert told == {(version("leaderq"), "billing:AdBilling")}
    assert found["b"]["host"] == view["host"] == socket.gethostname()


def test_transfer_and_step_down_return_when_the_next_leader_is_inaugurated(ask, stand, lead):
    lead("a")
    stand("b")
    stand("c")
    assert ask("transfer", "--to", "c") == (0, "", "c leads ad-billing, term 2\n")
    (view,) = ask("status", "--json").rows
    assert (view["leader"], view["stage"], view["term"]) == ("c", "execution", 2)
    assert ask("transfer", "--to", "c").code == 0
    done = ask("step-down")
    assert (done.code, done.err[1:]) == (0, " leads ad-billing, term 3\n"), done.err
    ask("transfer", "--to", "nobody").assert_refused("'nobody' does not stand for", code=1)


def test_work_is_paused_and_resumed_without_a_change_of_leader(ask, lead):
    leader = lead("a")
    reason = ["--reason", "the bank is closed"]
    assert ask("pause", *reason).err == "ad-billing is paused; a leads\n"
    leader.wait_for("work_paused")
    assert "execution (paused)" in ask("status").out
    user = f"{getpass.getuser()}@{socket.gethostname()}"
    assert f"{user} asked for pause" in ask("history").err
    (view,) = ask("status", "--json").rows
    assert view["why"] == f"an operator has paused it ({user}: the bank is closed)"
    assert ask("resume").err == "ad-billing resumes; a leads\n"
    leader.wait_for("work_resumed")
    (view,) = ask("status", "--json").rows
    assert (view["leader"], view["term"], view["paused"]) == ("a", 1, False)


def test_the_next_number_is_told_and_a_typing_error_in_it_is_refused(
    ask, stand, session, znode_root
):
    def told(*arguments):
        return ask("raise-floor", *arguments)

    assert told("5", "--new") == (0, "", "the next term is numbered 5 or higher\n")
    leader = stand("a")
    leader.wait_for("stage_began", stage="execution", term=5)
    above = ", as it was before: that is above 3"
    assert told("3") == (0, "", f"the next term is numbered 6 or higher{above}\n")
    told("1000006").assert_refused("is far above 5, the highest known")
    record = Layout(znode_root, "ad-billing").term
    session.set(record, b"{")
    assert told("1000007", "--yes") == (0, "", "the next term is numbered 1000007 or higher\n")
    # its leader writes the record again
    eventually(lambda: ask("status", "--json").rows[0]["leader"] == "a")
    # and if it could not, as one of a former version
    session.set(record, encode(TermRecord(number=1000006, id=REPAIRED)))
    done = ask("status")
    assert (done.code, "not known whether a leads" in done.out) == (0, True)
    (member,) = ask("members", "--json").rows
    assert member["role"] == "not known"
    assert ask("pause").err == "ad-billing is paused; who leads is not known\n"
    assert "are lost" in ask("history").err


def test_careers_are_chosen_by_pattern_and_by_trouble(shell, lead, given, znode_root, session):
    lead("a")
    layout = Layout(znode_root, "ad-night")
    session.ensure_path(layout.term)
    ended = TermRecord(number=3, candidate="b", id="x", began=1.0, ended=2.0, error="no disk")
    session.set(layout.term, encode(ended))
    session.ensure_path(f"{znode_root}/other")

    def listed(*arguments, code=0):
        found = shell("status", "--json", *arguments, **given).objects(code=code)
        return [one["career"] for one in found]

    assert listed("--career", "ad-*", code=5) == ["ad-billing", "ad-night"]
    assert listed("--career", "ad-b*") == ["ad-billing"]
    assert listed("--leaderless") == ["ad-night", "other"]
    assert listed("--failing") == ["ad-night"]
    shell("status", "--career", "bill*", **given).assert_refused("matches 'bill*'")
    shell("history", "--career", "ad-*", **given).assert_refused("nobody has ever stood")


def test_lag_rate_and_catch_up_are_shown_until_nobody_leads_and_what_is_no_report_hides_nothing(
    session, znode_root, ask, lead
):
    leader = lead("a")
    path = Layout(znode_root, "ad-billing").progress
    session.ensure_path(path)
    session.set(path, b"not a report")
    done = ask("status")
    assert done.lines[1].split()[:2] == ["ad-billing", "a"]
    assert "ad-billing/progress holds b'not a report'" in done.err
    assert "Traceback" not in done.err
    rows = {"t-10": PartitionLag(10, 10, 0), "t-9": PartitionLag(5, 125, 120)}
    still_fresh = time.time() + 300.0  # however long the command takes to begin
    report = DrainReport(1, still_fresh, partitions=rows, rate_per_s=40.0, catch_up_s=6.0)
    session.set(path, encode_report(report))
    heading, row = ask("status").lines
    assert heading.split()[-4:] == ["CANDIDATES", "LAG", "RATE", "CATCH-UP"]
    assert row.split()[-4:] == ["120", "40/s", "6", "s"]
    parts = [line.split() for line in ask("status", "--partitions").lines[1:]]
    assert [(part[1], part[3]) for part in parts] == [("t-9", "125"), ("t-10", "10")]
    (view,) = ask("status", "--json").rows
    assert (view["drain"]["fresh"], view["drain"]["lag"]) == (True, 120)
    leader.terminate()
    assert leader.wait() == 0
    (view,) = ask("status", "--json").objects(code=5)
    assert (view["leader"], view["drain"]["fresh"]) == (None, False)


COOL_OFF = ("--cool-off-s", "600", "--yield-s", "600")


def test_a_career_without_a_leader_says_what_failed_who_cools_off_and_until_when(
    shell, stand, given
):
    for name in "ab":  # each fails a term and cools off
        stand(name, "billing:Poison", *COOL_OFF).wait_for("cooling_off")
    done = shell("status", "--career", "poison", **given)
    assert done.code == 5
    last, *waiting = done.lines[2:]
    assert last.startswith("poison: term 2 of b on ")
    assert last.endswith(r" ago (failed): ValueError: bad record\x1b[31m")
    cool_off = r"poison: \w on \S+ cools off, and stands again at [\d:]+ \(in .*\)"
    assert [bool(re.fullmatch(cool_off, line)) for line in waiting] == [True, True]
    cooling = shell("members", "--json", **given).rows
    assert sorted((each["candidate"], each["role"], each["turn"]) for each in cooling) == [
        (name, "cooling off", None) for name in "ab"
    ]
    forget = shell("forget", "--career", "poison", "--yes", **given)
    forget.assert_refused("'poison' is in use by candidate", code=1)
    _, second, first = shell("history", "--career", "poison", **given).lines
    assert (second.split()[:2], first.split()[:2]) == (["2", "b"], ["1", "a"])
    assert "failed: ValueError: bad record" in first


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
    session, znode_root, shell, ask, lead, given
):
    lead("a")
    session.set(Layout(znode_root, "ad-billing").control, b"{")
    done = ask("status", "--json")
    (view,) = done.rows
    assert view["leader"] == "a"
    assert "the operators' wishes are lost" in done.err
    assert "the operators' wishes are lost" in view["why"]
    session.ensure_path(Layout(znode_root, "spoilt").term)
    session.set(Layout(znode_root, "spoilt").term, b"{")
    for verb in ("status", "members"):
        done = shell(verb, "--json", **given)
        assert [one["career"] for one in done.objects(code=1)] == ["ad-billing"]
        assert "leaderq raise-floor" in done.err


@pytest.fixture
def terminal() -> Iterator[SimpleNamespace]:
    """A terminal of 60 columns, as its user has it: what it shows, and what a process is given."""
    screen, tty = pty.openpty()
    fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    yield SimpleNamespace(screen=screen, tty=tty)
    os.close(screen)


def test_ctrl_c_says_what_is_awaited_and_the_second_one_that_it_left(begin, given, terminal):
    run = ("run", "billing:Slow", "--id", "a")
    process = begin(*run, settings=given, stderr=terminal.tty, start_new_session=True)
    os.close(terminal.tty)
    seen = read_until(terminal.screen, "work is in hand")
    process.send_signal(signal.SIGINT)
    seen += read_until(terminal.screen, "budget_s=10")
    time.sleep(2 * SAME_REQUEST_S)  # else it is the same request
    process.send_signal(signal.SIGINT)
    seen += read_until(terminal.screen, "without a hand-over")
    assert process.wait(30 * patience()) == 130
    assert "work in hand is finished within the budget, a second signal ends it at once" in seen


def test_top_shows_careers_at_a_terminal_and_pauses_one_after_a_question(
    shell, lead, begin, given, terminal, monkeypatch
):
    lead("a")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    at: Any = dict.fromkeys(("stdin", "stdout", "stderr"), terminal.tty)
    top = ("top", "--queue", "/no-queue-here")
    process = begin(*top, settings=given, start_new_session=True, **at)
    os.close(terminal.tty)
    keys = {"ad-billing": b"p", "begins no new": b"closed\r", "paused": b"q"}
    for wanted, typed in keys.items():
        read_until(terminal.screen, wanted)
        os.write(terminal.screen, typed)
    with contextlib.suppress(OSError):  # nobody writes any more
        while os.read(terminal.screen, 4096):
            pass
    assert process.wait(30 * patience()) == 0
    (view,) = shell("status", "--json", **given).rows
    assert view["paused"]
    assert view["why"].endswith(": closed)")


def read_until(fd, text):
    """What a process writes until it has written ``text``; pytest's own time-out ends the wait."""
    seen = ""
    while text not in seen:
        try:
            seen += os.read(fd, 4096).decode(errors="replace")
        except OSError as error:  # it ended without that
            raise AssertionError(f"{text!r} is not in {seen!r}") from error
    return seen
