"""What an operator types, against candidates that really run: status, members, transfer, step-down,
pause, resume, doctor.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import os
import pty
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
from leaderq.running.guardian import SAME_REQUEST_S
from leaderq.testing.waiting import eventually, patience


def test_status_and_members_show_who_leads_and_who_waits(
    shell, stand, lead, given, znode_root, session
):
    first, second = lead("a"), stand("b")
    path = Layout(znode_root, "ad-billing").processes

    def places():
        """What waiting candidates say of where they run."""
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
