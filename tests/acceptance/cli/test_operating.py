"""What an operator types, against candidates that really run: status, members, transfer, step-down,
pause, resume, doctor.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import time
from importlib.metadata import version

from leaderq.election.layout import Layout, TermRecord, encode
from leaderq.election.observer import REPAIRED
from leaderq.running.guardian import SAME_REQUEST_S
from leaderq.testing.waiting import eventually, patience


def lines(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


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
    (view,) = lines(shell("status", "--career", "ad-billing", "--json", **given))
    assert view["began"] > 0
    wanted = {"career": "ad-billing", "leader": "a", "pid": first.worker_pid, "term": 1}
    wanted |= {"stage": "execution", "candidates": ["a", "b"], "paused": False}
    assert {key: view[key] for key in wanted} == wanted
    assert lines(shell("status", "--json", **given)) == [view]
    heading, row = shell("status", **given).stdout.splitlines()
    columns = "CAREER LEADER TERM STAGE SINCE HOST PID VERSION CANDIDATES"
    assert " ".join(heading.split()) == columns
    assert row.split()[:4] == ["ad-billing", "a", "1", "execution"]
    found = {each["candidate"]: each for each in lines(shell("members", "--json", **given))}
    assert {name: each["role"] for name, each in found.items()} == {"a": "leader", "b": "next"}
    assert [found[name]["pid"] for name in "ab"] == [first.worker_pid, second.worker_pid]
    told = {(each["version"], each["leaderq"], each["career_class"]) for each in found.values()}
    assert told == {(None, version("leaderq"), "billing:AdBilling")}
    assert found["b"]["host"] == view["host"] == socket.gethostname()


def test_transfer_and_step_down_return_when_the_next_leader_is_inaugurated(ask, stand, lead):
    lead("a")
    stand("b")
    stand("c")
    done = ask("transfer", "--to", "c")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "c leads ad-billing, term 2\n")
    (view,) = lines(ask("status", "--json"))
    assert (view["leader"], view["stage"], view["term"]) == ("c", "execution", 2)
    assert ask("transfer", "--to", "c").returncode == 0
    done = ask("step-down")
    assert (done.returncode, done.stderr[1:]) == (0, " leads ad-billing, term 3\n"), done.stderr
    refused = ask("transfer", "--to", "nobody")
    assert refused.returncode == 1
    assert refused.stderr.startswith("leaderq: error: 'nobody' does not stand for 'ad-billing'")


def test_work_is_paused_and_resumed_without_a_change_of_leader(ask, lead):
    leader = lead("a")
    assert ask("resume").stderr == "ad-billing was not paused; a leads\n"
    reason = ["--reason", "the bank is closed"]
    assert ask("pause", *reason).stderr == "ad-billing is paused; a leads\n"
    leader.wait_for("work_paused")
    assert "execution (paused)" in ask("status").stdout
    user = f"{getpass.getuser()}@{socket.gethostname()}"
    said = ask("history").stderr
    assert f"{user} asked for pause" in said
    assert ": the bank is closed" in said
    (view,) = lines(ask("status", "--json"))
    assert view["why"] == f"an operator has paused it ({user}: the bank is closed)"
    assert ask("resume").stderr == "ad-billing resumes; a leads\n"
    leader.wait_for("work_resumed")
    (view,) = lines(ask("status", "--json"))
    assert (view["leader"], view["term"], view["paused"]) == ("a", 1, False)


def test_the_next_number_is_told_and_a_typing_error_in_it_is_refused(
    ask, stand, session, znode_root
):
    def told(*arguments):
        done = ask("raise-floor", *arguments)
        return done.returncode, done.stderr

    assert told("5")[0] == 2  # nobody has ever stood for it
    assert told("5", "--new") == (0, "the next term is numbered 5 or higher\n")
    leader = stand("a")
    leader.wait_for("stage_began", stage="execution", term=5)
    above = ", as it was before: that is above 3"
    assert told("3") == (0, f"the next term is numbered 6 or higher{above}\n")
    assert told(str(2**63), "--yes")[0] == 2
    code, said = told("1000006")
    assert (code, "is far above 5, the highest known" in said) == (2, True)
    record = Layout(znode_root, "ad-billing").term
    session.set(record, b"{")
    assert told("1000007", "--yes") == (0, "the next term is numbered 1000007 or higher\n")
    # its leader writes the record again
    eventually(lambda: lines(ask("status", "--json"))[0]["leader"] == "a")
    # and if it could not, as one of a former version
    session.set(record, encode(TermRecord(number=1000006, id=REPAIRED)))
    done = ask("status")
    assert (done.returncode, "not known whether a leads" in done.stdout) == (0, True)
    (member,) = lines(ask("members", "--json"))
    assert member["role"] == "not known"
    assert ask("pause").stderr == "ad-billing is paused; who leads is not known\n"
    assert "are lost" in ask("history").stderr


def test_careers_are_chosen_by_pattern_and_by_trouble(shell, lead, given, znode_root, session):
    lead("a")
    layout = Layout(znode_root, "ad-night")
    session.ensure_path(layout.term)
    ended = TermRecord(number=3, candidate="b", id="x", began=1.0, ended=2.0, error="no disk")
    session.set(layout.term, encode(ended))
    session.ensure_path(f"{znode_root}/other")

    def listed(*arguments, code=0):
        done = shell("status", "--json", *arguments, **given)
        assert done.returncode == code, done.stderr
        return {one["career"]: one["why"] for one in map(json.loads, done.stdout.splitlines())}

    assert list(listed()) == ["ad-billing", "ad-night", "other"]
    assert list(listed("--career", "ad-*", code=5)) == ["ad-billing", "ad-night"]
    assert list(listed("--career", "ad-b*")) == ["ad-billing"]
    assert list(listed("--leaderless")) == ["ad-night", "other"]
    (why,) = listed("--failing").values()
    assert "no disk" in why
    assert "no candidate stands" in why
    refused = shell("status", "--career", "bill*", **given)
    assert (refused.returncode, "matches 'bill*'" in refused.stderr) == (2, True)
    assert {one["career"] for one in lines(shell("members", "--career", "ad-*", "--json", **given))}
    refused = shell("history", "--career", "ad-*", **given)
    assert (refused.returncode, "nobody has ever stood" in refused.stderr) == (2, True)


def test_doctor_finds_the_class_of_a_career_by_its_name(shell, lead, given, folder):
    def found(name):
        done = shell("doctor", "--quick", "--json", "--career", name, **given)
        checks = {each["check"]: each for each in map(json.loads, done.stdout.splitlines())}
        return checks.get("career") or checks["configuration"]

    assert "class of career 'ad-billing' is not known" in found("ad-billing")["detail"]
    lead("a")
    assert "can be made from billing:AdBilling" in found("ad-billing")["detail"]
    (folder / "leaderq.toml").write_text("[careers.night]\nclass = 'billing:Slow'\n")
    assert found("night")["detail"].startswith("night can be made from billing:Slow")


def test_ctrl_c_says_what_is_awaited_and_the_second_one_that_it_left(
    folder, environment, znode_root, zookeeper_server
):
    """At a terminal, as its user has it."""
    screen, tty = pty.openpty()
    command = [sys.executable, "-m", "leaderq", "run", "billing:Slow", "--id", "a"]
    settings = environment(zookeeper=zookeeper_server.address, root=znode_root)
    with subprocess.Popen(
        command, cwd=folder, env=settings, stderr=tty, start_new_session=True
    ) as process:
        os.close(tty)
        seen = read_until(screen, "work is in hand")
        process.send_signal(signal.SIGINT)
        seen += read_until(screen, "budget_s=10")
        time.sleep(2 * SAME_REQUEST_S)  # else it is the same request
        process.send_signal(signal.SIGINT)
        seen += read_until(screen, "without a hand-over")
    os.close(screen)
    assert process.returncode == 130
    assert (
        "work in hand is finished within the budget, a second signal ends it at once career=slow"
        " id=a term=1" in seen
    )
    assert "leaderq: left at the second signal, without a hand-over" in seen


def test_top_shows_careers_at_a_terminal_and_pauses_one_after_a_question(
    shell, lead, folder, environment, given
):
    lead("a")
    screen, tty = pty.openpty()
    fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    settings = environment(**given) | {"TERM": "xterm", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "leaderq", "top", "--queue", "/no-queue-here"]
    with subprocess.Popen(
        command, cwd=folder, env=settings, stdin=tty, stdout=tty, stderr=tty, start_new_session=True
    ) as process:
        os.close(tty)
        keys = {"ad-billing": b"p", "begins no new": b"closed\r", "paused": b"q"}
        try:
            for wanted, typed in keys.items():
                read_until(screen, wanted)
                os.write(screen, typed)
            with contextlib.suppress(OSError):  # nobody writes any more
                while os.read(screen, 4096):
                    pass
            assert process.wait(30 * patience()) == 0
        finally:
            process.kill()
    os.close(screen)
    (view,) = lines(shell("status", "--json", **given))
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
