from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import signal
import sys
import termios
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.admin.dyno_queues import BrowsedMessage
from leaderq.admin.text import brief, duration, is_like, local
from leaderq.base import clock
from leaderq.base.exits import ExitCode
from leaderq.cli import careers, ensemble, finding, main, signals
from leaderq.cli.demo import stage
from leaderq.cli.doctor import _own_store, judge_dead_letters, judge_topic
from leaderq.cli.ensemble import ServerView, judge_servers, judge_tick, view_of
from leaderq.cli.output import Shade, say, shaded, write_table
from leaderq.cli.queue import drain, put, showing
from leaderq.errors import ConfigurationError
from leaderq.kafka import StoreContext
from leaderq.kafka.topics import TopicView
from leaderq.observability.http import HttpEndpoint, HttpReply
from leaderq.queues.admin import Browsed
from leaderq.queues.admin.contents import read
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.payload import encode
from leaderq.testing import eventually


@pytest.fixture
def terminal(monkeypatch, capsys):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def of(columns):
        size = os.terminal_size((columns, 24))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: size)

    return of


@pytest.mark.parametrize(
    ("seconds", "text"),  # the last: since an instant in the future of a crooked clock
    [(59.9, "59 s"), (7500, "2 h 5 m"), (90000, "1 d 1 h"), (-50.0, "0 s")],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


def test_damaged_entries_about_records_that_were_let_pass_are_left_out():
    whole = {"at": "t-0@1", "by": "ann", "term": 3, "when": 0}
    damaged = [{}, {**whole, "when": "x"}, {**whole, "when": float("inf")}]
    data = json.dumps({"asked": [], "done": [*damaged, whole]}).encode()
    found = (data, SimpleNamespace(version=1))
    session = SimpleNamespace(exists=lambda _: True, get=lambda _: found)
    (said,) = careers._buried(session, "/leaderq", "c")
    assert said.startswith("t-0@1 was let pass in term 3, ")


def test_a_narrow_terminal_is_shown_fewer_columns_and_never_too_few(capsys, terminal):
    columns, spare = ("A", "SPARE", "B", "LESS"), {"SPARE": 2, "LESS": 1}
    row = [("a" * 9, "s" * 9, "b" * 9, "l" * 9)]
    for width, wanted in ((42, "A SPARE B LESS"), (41, "A B LESS"), (30, "A B"), (5, "A B")):
        terminal(width)
        write_table(columns, row, spare)
        assert capsys.readouterr().out.split("\n")[0].split() == wanted.split()


def test_colours_are_for_terminals_that_want_them_and_take_no_room(capsys, monkeypatch, terminal):
    assert shaded("a", Shade.BAD) == "a"
    terminal(80)
    red = shaded("a", Shade.BAD)
    assert red != "a" == shaded("a", None)
    write_table(("H", "X"), [(red, "x"), ("ab", "y")])
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert [line.index(last) for line, last in zip(lines, "Xxy", strict=True)] == [4, 4, 4]
    monkeypatch.setenv("NO_COLOR", "1")
    assert shaded("a", Shade.BAD) == "a"


def test_what_others_have_written_can_neither_break_a_table_nor_command_the_terminal(
    capsys, terminal
):
    """Names of queues, values of records, errors: anybody may have written them."""
    terminal(80)
    write_table(("H", "X"), [("a\nb\x1b[2J", shaded("c\u202ed", Shade.BAD)), ("/\u202eq", 1)])
    lines = capsys.readouterr().out.split("\n")
    told = [click.unstyle(line).split() for line in lines if line]
    assert told == [["H", "X"], [r"a\nb\x1b[2J", r"c\u202ed"], [r"/\u202eq", "1"]]
    say("a\x1b[2J leads")
    assert capsys.readouterr().err == "a\\x1b[2J leads\n"
    assert shaded("a\x1b[2J", None) == r"a\x1b[2J"


def item(name: str, *values: bytes) -> Browsed:
    return read(name, encode(values), 1_700_000_000_000, 4)


@given(values=st.lists(st.binary().filter(lambda one: b"\n" not in one)), size=st.integers(1, 9))
def test_lines_are_what_they_were_however_they_come(values, size):
    source = io.BytesIO(b"".join(value + b"\n" for value in values))
    trickle = SimpleNamespace(read1=lambda _most=-1: source.read(size))
    assert [one for batch in put.pieces(trickle, b"\n") for one in batch] == values


def test_what_one_verb_writes_the_other_reads():
    for kind, name, keys in (
        (QueueKind.ID, "queue-|x|0000000001", put.Keys(id="x")),
        (QueueKind.PRIORITY, "queue-0FFFFFFFB0000000001", put.Keys(priority=-5)),
        (QueueKind.DELAY, "queue-|18BCFE56800|0000000001", put.Keys(due_ms=1_700_000_000_000)),
        (QueueKind.PLAIN, "queue-0000000001", put.Keys()),
    ):
        said = json.dumps(showing.item_json(item(name, b"text", b"\xff", b""), kind))
        assert put.from_json(7, said.encode()) == put.Entry(7, (b"text", b"\xff", b""), keys)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "is not JSON"),
        (b"{}", 'has neither "values", a list, nor "value"'),
        (b'{"values": "a"}', "nor"),
        (b'{"values": [{"base64": "?"}]}', "is not base64"),
        (b'{"value": "a", "priority": true}', 'has a "priority" that is not a whole number'),
        (b'{"corrupt": "x", "data": ""}', "was a corrupt item"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"value": "\\ud800"}', "neither text in UTF-8 nor"),
    ],
)
def test_a_line_that_is_no_item_says_why(line, said):
    with pytest.raises(put.BadEntry, match=said):
        put.from_json(1, line)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain", "plain"),
        ("ä\n\t\x1b[31m".encode(), r"ä\n\t\x1b[31m"),
        (b"\xff\x00", "(hexadecimal) ff 00"),
        (b"x" * 61, "x" * 59 + "…"),
        (b"\xff" * 500, "(hexadecimal) " + "ff " * 15 + "…"),
        (b"PK\x03\xff" * 500, "(hexadecimal) " + "50 4b 03 ff " * 3 + "50 4b 03 …"),
        ("x\U0001f511".encode() * 60, "x\U0001f511" * 29 + "x…"),
        ("\U0001f511".encode() * 60 + b"x", "\U0001f511" * 59 + "…"),
    ],
)
def test_an_item_is_shown_on_one_short_line_that_harms_no_terminal(data, shown):
    assert brief(data) == shown


def test_a_moment_at_the_end_of_the_calendar_is_told_in_every_time_zone(monkeypatch):
    """Many write the end of the year 9999 where they mean never."""
    for zone in ("Etc/GMT-14", "Etc/GMT+12"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        said = local(253_402_300_799_000), local(0)
        monkeypatch.undo()
        time.tzset()
        end = "9999-12-31 11:59:59" if "+" in zone else "253402300799000 ms"
        assert (said[0], said[1][:4]) == (end, "1969" if "+" in zone else "1970")


def test_a_filter_that_looks_like_a_pattern_is_also_a_part_of_a_name():
    assert all(is_like(one, "jobs [eu] 1?") for one in ("[EU]", "1?", "jobs [eu] 1?", "*u]*"))
    assert not is_like("[xyz]", "jobs")


def test_what_no_utf_8_can_hold_is_escaped_as_json_escapes_it():
    said = {"headers": {"by": "\ud800"}}
    message = BrowsedMessage("0/m", b"", [b"x"], None, None, 1, 0, None, said)
    lines: list[bytes] = []
    drain.ItemWriter(lines.append, as_json=True, as_base64=False, null=False).write(message)
    assert json.loads(lines[0])["headers"] == said["headers"]


def test_a_drain_to_a_full_disk_says_so_and_keeps_nothing(monkeypatch, capsys):
    kept: list[Browsed] = []
    draining = SimpleNamespace(
        kind=QueueKind.PLAIN,
        wake=lambda: None,
        keep=kept.append,
        batches=lambda *_, **__: iter([[item("queue-0000000001", b"x")]]),
    )
    keeper = SimpleNamespace(depth=lambda: 1, drain=lambda: nullcontext(draining))
    monkeypatch.setattr(drain, "keeping", lambda _given: nullcontext(keeper))
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["queue", "drain", "/q", "--yes"]) == ExitCode.FAILED
    err = capsys.readouterr().err
    assert "No space left on device; what was not written went back\n0 drained" in err
    assert not kept


def readable(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_signal_prevents_a_piece_or_lets_it_be_written_to_its_end():
    """The pipe is full; the signal comes before a piece is begun, or amid a long one."""
    source, sink = os.pipe()
    try:
        with signals.Stopping() as stopping:
            outlet = drain.Outlet(sink, stopping)
            room = fcntl.fcntl(sink, fcntl.F_GETPIPE_SZ)

            def ask_and_read() -> None:
                eventually(lambda: readable(source) == room)  # it has begun, and waits for room
                signal.raise_signal(signal.SIGTERM)
                os.read(source, room)

            reading = threading.Thread(target=ask_and_read)
            reading.start()
            outlet.write(bytes(room + 100))
            reading.join()
            assert stopping.is_asked
            with pytest.raises(KeyboardInterrupt):
                outlet.write(b"x")
        assert os.read(source, room) == bytes(100)
        with signals.Stopping() as stopping:
            outlet = drain.Outlet(sink, stopping)
            outlet.write(bytes(room))
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                outlet.write(b"x")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        os.close(source)
        os.close(sink)


OK, ADVICE, FAILED = finding.Verdict.OK, finding.Verdict.ADVICE, finding.Verdict.FAILED
FINE = TopicView(6, 0, 3, 3, 2, frozenset({"READ", "WRITE", "DESCRIBE"}))
MISSING = TopicView(0, 0, 0, 0, None, frozenset({"READ", "DESCRIBE"}))


def may(view: TopicView, *operations: str) -> TopicView:
    return replace(view, operations=frozenset(operations))


@pytest.mark.parametrize(
    ("judge", "view", "verdict", "said"),
    [
        (judge_topic, FINE, OK, "6 partitions, 3 of 3 replicas in sync"),
        (judge_topic, MISSING, FAILED, "create it: leaderq topics create clicks"),
        (judge_topic, may(MISSING), FAILED, "may not see it, or it is not there"),
        (judge_topic, may(FINE, "DESCRIBE"), FAILED, "needs the operation READ"),
        (judge_topic, replace(FINE, leaderless=2), FAILED, "2 of 6 partitions have no leader"),
        (judge_topic, replace(FINE, in_sync=2), ADVICE, "2 of 3 replicas in sync; is a broker"),
        (judge_topic, replace(FINE, replicas=1, in_sync=1), ADVICE, "lost with the disk of one"),
        (judge_dead_letters, FINE, OK, "6 partitions"),
        (judge_dead_letters, may(MISSING, "CREATE", "WRITE"), OK, "made when the career is run"),
        (judge_dead_letters, may(MISSING, "WRITE"), FAILED, "create it: leaderq topics create"),
        (judge_dead_letters, may(MISSING, "CREATE"), FAILED, "needs WRITE, and CREATE if it is"),
        (judge_dead_letters, may(FINE, "READ", "DESCRIBE"), FAILED, "needs WRITE"),
        (judge_dead_letters, replace(FINE, in_sync=1), FAILED, "1 replicas are in sync, and min."),
    ],
)
def test_a_topic_is_fit_for_its_use_or_what_to_do_is_said(judge, view, verdict, said):
    found = judge("clicks", view)
    assert (found.check, found.verdict) == ("topic clicks", verdict)
    assert said in found.detail


def servers(*ticks: float | None) -> list[ServerView]:
    return [ServerView(f"zk{n}:2181", "follower", tick, 4.0) for n, tick in enumerate(ticks)]


@pytest.mark.parametrize(
    ("ticks", "timeout_s", "configured_s", "verdict", "said"),
    [
        ([2.0], 10, None, OK, "T is 10 s, 5 ticks; minSessionTimeout is 4 s; a stall of 3.6 s"),
        ([2.0], 10, None, OK, "with tick_s = 2 it would be 5.1 s"),
        ([2.0], 10, 1.0, FAILED, "with tick_s = 1 a lease could outlive its session"),
        ([1.0, 2.0], 10, 1.5, FAILED, "1 to 2 s"),
        ([2.0, None], 10, 2.0, OK, "(of 1 of 2 servers)"),
        ([2.0], 3.9, None, FAILED, "session_timeout_s must be at least 4"),
        ([2.0], 4, 3.6, ADVICE, "a longer session_timeout_s, or a shorter tick, leaves more"),
        ([None], 10, 2.0, ADVICE, "tick_s = 2 cannot be checked"),
        ([None], 10, None, OK, "taken to be 5 s at most, half of T; no server tells its tick"),
    ],
)
def test_the_tick_satisfies_what_leases_rest_on_or_what_to_do_is_said(
    ticks, timeout_s, configured_s, verdict, said
):
    (found,) = judge_tick(servers(*ticks), timeout_s, configured_s)
    assert (found.check, found.verdict) == ("tick", verdict)
    assert said in found.detail
    assert isinstance(found.error, ConfigurationError) == (verdict is FAILED)


def test_a_store_whose_check_fails_is_one_finding():
    store = SimpleNamespace(word="mine", check=lambda _: {}["password"])
    found = _own_store(store, StoreContext("c", "/leaderq", "here"))
    assert found.verdict is FAILED
    assert found.detail == "the check of 'mine' raised KeyError: 'password'"


def test_the_servers_are_told_with_their_modes_and_those_that_say_nothing():
    views = [ServerView("a:1", "leader"), ServerView("b:1", "follower", ours=True)]
    views += [ServerView("c:1", ""), ServerView("d:1", None)]
    found, silent, even = judge_servers(views, ["participant"] * 4 + ["observer"])
    assert found.detail.startswith("a:1 leads; b:1 follows; c:1: not said (srvr is not in ")
    assert " this session is with b:1; 4 servers vote and 1 observe, 4 are in " in found.detail
    assert (silent.verdict, silent.detail) == (ADVICE, "no answer from d:1; is a server down?")
    assert (even.verdict, "no more may fail than of 3" in even.detail) == (ADVICE, True)


def test_a_server_tells_its_tick_by_its_admin_server_or_that_it_is_not_there(monkeypatch):
    told = HttpReply(200, json.dumps({"tick_time": 3000, "min_session_timeout": 6000}))
    assert view_of("127.0.0.1", 1) == ServerView("127.0.0.1:1", None)
    with HttpEndpoint("127.0.0.1:0") as admin:
        admin.start({"/commands/configuration": lambda: told})
        monkeypatch.setattr(ensemble, "ADMIN_PORT", int(admin.address.rpartition(":")[2]))
        monkeypatch.setattr(ensemble, "ask", lambda *_: "not in the whitelist")
        assert view_of("127.0.0.1", 1) == ServerView("127.0.0.1:1", "", 3.0, 6.0)
        told = HttpReply(200, json.dumps({"tick_time": 0, "min_session_timeout": -1}))
        assert view_of("127.0.0.1", 1) == ServerView("127.0.0.1:1", "", None, None)


def test_a_server_that_answers_byte_by_byte_is_left_behind_and_the_others_are_told(monkeypatch):
    def dripping(ip, port, _tls):
        assert port == 2 or not left.wait(60)
        return ServerView(f"{ip}:{port}", "leader")

    left = threading.Event()
    monkeypatch.setattr(ensemble, "view_of", dripping)
    monkeypatch.setattr(ensemble, "_ALL_S", 0.2)
    session = SimpleNamespace(resolved_servers=[("a", 1), ("b", 2)])
    views = ensemble.ensemble_of(session, None)
    left.set()
    assert views == [ServerView("a:1", None), ServerView("b:2", "leader")]


def test_the_demo_waits_for_a_slow_machine_and_says_where_nothing_moves(monkeypatch):
    now = SimpleNamespace(s=0.0, fed=0)

    def sleep(_seconds):
        now.s += 20.0
        now.fed = min(9, now.fed + 1)

    monkeypatch.setattr(clock, "now_s", lambda: now.s)
    monkeypatch.setattr(stage.time, "sleep", sleep)
    monkeypatch.setattr(stage, "patience", lambda: 1.0)
    feeding = SimpleNamespace(check=lambda: None)
    at_work = SimpleNamespace(feeding=feeding, _check_processes=lambda: None, contenders={})
    moves = {"timeout_s": 60.0, "progress": lambda: now.fed}
    stage.DemoStage.until(at_work, lambda: now.fed == 9, "all is fed", **moves)
    assert now.s == 180.0
    with pytest.raises(stage.StoodStill, match="waited 60 s in vain until all is fed"):
        stage.DemoStage.until(at_work, lambda: now.fed == 10, "all is fed", **moves)
    assert now.s == 240.0
