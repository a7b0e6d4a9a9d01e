"""What an operator types about queues; also killed, interrupted, and into a broken pipe."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from leaderq.queues.admin import QueueAdmin
from leaderq.queues.wire.payload import Note, decode, encode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.testing import eventually
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session


@pytest.fixture
def path(znode_root) -> str:
    return f"{znode_root}/orders"


@pytest.fixture
def drain(begin, path, given) -> Callable[..., subprocess.Popen[bytes]]:
    def start(*arguments: str, timeout_s: str = "20") -> subprocess.Popen[bytes]:
        settings = {"zookeeper": given["zookeeper"], "session_timeout_s": timeout_s}
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
        process: subprocess.Popen[bytes]
        process = begin("queue", "drain", path, "--yes", *arguments, settings=settings, **pipes)
        return process

    return start


def values(session: Session, path: str) -> list[bytes]:
    return [
        item for one in QueueAdmin(session, QueuePaths(path)).browse() for item in one.items or ()
    ]


def bury(session: Session, path: str, value: bytes, error: str = "KeyError: 'iban'") -> str:
    session.ensure_path(f"{path}-dead")
    times: dict[str, Any] = {"enqueued_ms": 5, "died_ms": 1_790_000_000_000}
    note = Note(reason="attempts", error=error, origin="queue-0000000099", attempt=10, **times)
    return session.create(f"{path}-dead/queue-", encode([value], note), sequential=True)[-16:]


def test_items_are_put_listed_shown_and_drained_in_their_order(queue, path):
    done = queue("put", path, "a", "", "ä\nb")
    said = f"{path} is new: taken for a plain queue (--kind says otherwise)\n3 stored in {path}\n"
    assert done == (0, "", said)
    assert queue("put", path, stdin=b"\xef\xbb\xbfx\n\xff\r\n\ny").err == f"4 stored in {path}\n"
    table = queue("ls", path).lines
    assert " ".join(table[0].split()) == "QUEUE KIND DEPTH HELD DEAD NEXT CONSUMERS OLDEST REMARKS"
    assert table[1].split()[:6] == [path, "plain", "7", "-", "0", "7"]
    shown = queue("peek", path, "--limit", "3").lines
    assert shown[0].split() == ["NAME", "ENQUEUED", "ATTEMPT", "BYTES", "ITEM"]
    assert [line.split()[0] for line in shown[1:]] == [f"queue-{n:010d}" for n in range(3)]
    assert shown[3].endswith(r"4      ä\nb")
    rows = queue("peek", path, "--all", "--json").rows
    assert [row["values"] for row in rows[2:5]] == [["ä\nb"], ["x"], [{"base64": "/w0="}]]
    assert {row["attempt"] for row in rows} == {1}
    two = queue("drain", path, "--yes", "--limit", "2")
    assert two == (0, "a\n\n", f"2 drained from {path}\n")
    done = queue("drain", path, "--yes")
    assert (done.code, done.out) == (0, "ä\nb\nx\n\udcff\r\n\ny\n")
    assert "1 values contain what ends a value; use --json or --base64" in done.err
    assert queue("drain", path, "--yes").err == f"0 drained from {path}\n"
    assert queue("peek", path).err == f"no items at {path}\n"


def test_a_queue_is_removed_with_everything_beside_it_and_only_by_force_while_it_holds_items(
    queue, path, session
):
    assert queue("put", path, "a").code == 0
    queue("rm", path, "--yes").assert_refused("is in use: 1 items", code=1)
    queue("rm", path).assert_refused("give --yes")
    assert queue("rm", path, "--force", "--yes").code == 0
    parent, _, name = path.rpartition("/")
    assert [child for child in session.children(parent or "/") if child.startswith(name)] == []


def test_dead_letters_are_shown_filtered_sent_back_and_dropped(queue, path, session):
    names = [bury(session, path, b"dead %d" % n) for n in range(3)]
    bury(session, path, b"dead 0", "TimeoutError: bank away")
    table = queue("dead", path, "--limit", "2").lines
    assert table[0].split() == ["NAME", "DIED", "ORIGIN", "ATTEMPTS", "REASON", "ERROR", "ITEM"]
    assert table[1].endswith("queue-0000000099  10        attempts  KeyError: 'iban'  dead 0")
    assert len(table) == 3
    (row,) = queue("dead", path, "--json", "--error", "BANK").rows
    assert (row["died"][:4], row["values"]) == ("2026", ["dead 0"])
    assert queue("requeue", path, names[1], "--yes").err == f"1 sent back to {path}; 3 remain\n"
    assert queue("requeue", path, "--error", "timeout", "--json", "--yes").rows == [
        {"requeued": 1, "gone": 0, "remain": 2}
    ]
    assert values(session, path) == [b"dead 1", b"dead 0"]
    name = session.children(path)[0]
    assert decode(session.get(f"{path}/{name}")[0]).note == Note(enqueued_ms=5)
    queue("dead", path, "--drop").assert_refused("give --yes")
    assert queue("dead", path, names[0], "--drop", "--yes").err == "1 dropped\n"
    assert queue("requeue", path, "--all", "--yes").err == f"1 sent back to {path}; 0 remain\n"
    assert values(session, path)[2:] == [b"dead 2"]


def test_what_an_operator_gets_wrong_is_said_in_one_line_and_changes_nothing(queue, path, session):
    assert queue("put", path, "a").code == 0
    near = path[:-1]
    mistakes: list[tuple[list[str], str]] = [
        (["ls", near], f"there is no queue at {near}"),
        (["peek", near], f"did you mean {path}?"),
        (["purge", path], f"this deletes all items at {path}; give --yes"),
        (["drain", path], "give --yes"),
        (["dead", path, "nameless"], "there is no dead letter nameless"),
        (["requeue", path, "x", "--all"], "give either NAMEs or --all"),
        (["put", path, "--id", "x", "b"], "those of a plain queue, and --id was given"),
        (["put", path, "--id", "x", "--priority", "1", "b"], "different kinds of queue"),
        (["put", path, "--from-json", "--multi", "2"], "--from-json stands alone"),
        (["drain", path, "--yes", "--json", "--null"], "--json stands alone"),
        (["rm", "", "--yes"], "must be absolute"),
        (["purge", "/", "--yes"], "'/' is not a queue"),
    ]
    for arguments, said in mistakes:
        queue(*arguments).assert_refused(said)
    assert values(session, path) == [b"a"]


COUNT = 3000


@pytest.fixture
def filled(session, path, queue) -> list[bytes]:
    wanted = [b"%06d" % n + b"x" * 60 for n in range(COUNT)]
    assert queue("put", path, stdin=b"\n".join(wanted)).code == 0
    return wanted


def test_a_drain_into_a_pipe_that_breaks_puts_back_all_that_was_not_read(
    drain, filled, path, session
):
    taken = 5
    process = drain()
    size = len(filled[0]) + 1
    read = b""
    while len(read) < taken * size + 3:  # the item behind them is torn
        read += process.stdout.read(taken * size + 3 - len(read))
    process.stdout.close()
    _, err = process.communicate(timeout=60 * patience())
    assert (process.returncode, b"Traceback" in err) == (1, False), err
    assert read.splitlines()[:taken] == filled[:taken]
    assert values(session, path) == filled[taken:]
    said = f"the reader went away; what it had not read went back\n{taken} drained from {path}\n"
    assert err.decode() == said


def test_a_drain_that_is_killed_loses_nothing_and_the_next_one_ends_it(
    drain, filled, path, session, queue
):
    # The next one waits for the end of this one's session, so long as its own time-out says.
    process = drain(timeout_s="3")
    eventually(lambda: 0 < len(session.children(path)) < COUNT)
    process.kill()
    out, _ = process.communicate(timeout=60 * patience())
    written = out.split(b"\n")[:-1]
    (seen,) = queue("ls", path, "--json").rows
    assert 0 < seen["aside"] <= 400
    assert "held by a drain that is running or has died (drain again)" in queue("ls", path).out
    rest = queue("drain", path, "--yes").out.encode().splitlines()
    assert written == filled[: len(written)]
    assert rest == filled[-len(rest) :]
    assert COUNT <= len(written) + len(rest) <= COUNT + 400
    assert session.children(f"{path}-meta/drained") == []


def test_a_drain_that_follows_gives_out_what_comes_until_ctrl_c(drain, path, queue, session):
    assert queue("put", path, "a").code == 0
    process = drain("--follow")
    assert process.stdout.readline() == b"a\n"
    assert queue("put", path, "b", "c", "--kind", "plain").code == 0
    assert [process.stdout.readline(), process.stdout.readline()] == [b"b\n", b"c\n"]
    eventually(lambda: session.children(f"{path}-meta/drained") == [])
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60 * patience())
    assert (process.returncode, err.decode()) == (0, f"3 drained from {path}\n")
