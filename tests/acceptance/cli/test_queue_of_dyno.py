"""What an operator types about Dyno queues: ls, stats, peek, put, ack, dead, requeue, purge, rm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leaderq.dyno import DynoQueue, Message, Unique
from leaderq.queues import Retry


@pytest.fixture
def path(znode_root) -> str:
    return f"{znode_root}/jobs"


@pytest.fixture
def jobs(session, path) -> Iterator[DynoQueue]:
    once = Retry(attempts=1)
    with DynoQueue(
        session, path, shards=("a", "b"), strategy=lambda _, __: "a", retry=once
    ) as queue:
        yield queue


def test_messages_are_put_shown_and_listed_as_a_program_sees_them(queue, path, session, znode_root):
    options = ("--kind", "dyno", "--priority", "7", "--header", "by=anna")
    said = f"{path} is new: taken for a dyno queue (--kind says otherwise)\n2 stored in {path}\n"
    assert queue("put", path, *options, "first", "ä") == (0, "", said)
    options = ("--id", "order/17", "--delay-s", "3600", "--group", "g", "--base64", "/w==")
    assert queue("put", path, *options).err == f"1 stored in {path}\n"
    assert queue("put", path, "urgent").code == 0
    rows = queue("peek", path, "--json").rows
    assert [row["values"][0] for row in rows] == ["urgent", "first", "ä", {"base64": "/w=="}]
    shown = [(row["id"], row["group"], row["priority"], row["held"]) for row in rows[2:]]
    assert shown == [(None, None, 7, False), ("order/17", "g", 0, False)]
    assert (rows[1]["headers"], rows[1]["name"][:5]) == ({"by": "anna"}, "0/07-")
    assert rows[3]["due_ms"] > rows[0]["due_ms"] + 3_000_000
    lines = queue("peek", path, "--limit", "1").lines
    headings = "NAME ID PRIORITY DUE HELD ENQUEUED ATTEMPT BYTES ITEM"
    assert lines[0].split() == headings.split()
    assert lines[1].split()[-3:] == ["1", "6", "urgent"]
    for where in (path, znode_root):
        (said,) = queue("ls", where, "--json").rows
        wanted = {"queue": path, "kind": "dyno", "depth": 4, "due": 3, "delayed": 1, "held": 0}
        assert said | wanted == said
    assert queue("ls", znode_root).lines[1].split()[:4] == [path, "dyno", "4", "0"]
    with DynoQueue(session, path) as program:
        popped = program.pop(9)
        assert [(one.payload, one.headers) for one in popped][1] == (b"first", {"by": "anna"})
        (again,) = [one for one in program.all_messages() if one.id == "order/17"]
        assert (again.payload, again.group) == (b"\xff", "g")


def test_dead_letters_are_shown_filtered_sent_back_and_dropped(queue, path, jobs):
    jobs.push([Message(f"m{n}", b"%d" % n, headers={"n": str(n)}) for n in range(5)])
    for one in jobs.pop(5, 30):
        one.nack("TimeoutError" if one.id == "m4" else "KeyError: 'iban'")
    (row,) = queue("dead", path, "--json", "--error", "timeout").rows
    wanted = {"origin": "m4", "reason": "attempts", "attempts": 1, "values": ["4"]}
    assert row | wanted == row
    assert len(queue("dead", path).lines) == 6
    done = queue("requeue", path, "--all", "--dry-run", "--json")
    assert (done.rows, jobs.size()) == ([{"would_requeue": 5}], 0)
    assert queue("requeue", path, "m1", "--yes").err == f"1 sent back to {path}; 4 remain\n"
    chosen = ("--error", "timeout", "--rate", "1", "--yes")
    assert queue("requeue", path, *chosen).err == f"1 sent back to {path}; 3 remain\n"
    assert {(one.id, one.headers["n"]) for one in jobs.all_messages()} == {("m1", "1"), ("m4", "4")}
    name = queue("dead", path, "m0", "--json").rows[0]["name"]
    assert queue("dead", path, name, "--drop", "--yes").err == "1 dropped\n"
    assert jobs.shard_sizes()["a"]["dead"] == 2
    queue("requeue", path, "m0", "--yes").assert_refused("there is no dead letter m0")


def test_a_queue_is_purged_but_for_what_is_held_and_removed_when_it_is_not_in_use(
    queue, path, session
):
    with DynoQueue(session, path) as jobs:
        jobs.push(
            [Message(id="held"), Message(id="once", unique=Unique.STARTED), Message(timeout_s=60)]
        )
        (held,) = jobs.pop(1, 30)
        old = ("--older-than", "3600")
        queue("purge", path, *old).assert_refused("all items older than 3600 s")
        assert queue("purge", path, *old, "--yes").err.startswith("0 deleted")
        done = queue("purge", path, "--older-than", "0", "--yes", "--json")
        assert done.rows == [{"deleted": 2, "held": 1, "gone": 0, "stuck": 0}]
        held.release()
        in_use = "is in use: 1 messages, 1 consumers"
        queue("rm", path, "--yes").assert_refused(in_use, code=1)
        assert queue("purge", path, "--yes", "--held-too").code == 0
    assert queue("rm", path, "--yes").code == 0
    assert session.exists(path) is None


def test_messages_are_drained_due_or_not_and_what_others_have_stays(queue, path, jobs):
    jobs.push([Message(payload=b"held"), Message(payload=b"low", priority=9)])
    (held,) = jobs.pop(1, 30)
    jobs.push([Message("u", b"urgent"), Message(payload=b"later", timeout_s=3600)])
    jobs.push([Message(payload=b"g1", group="g"), Message(payload=b"g2", group="g")])
    jobs.pause()
    (first,) = queue("drain", path, "--json", "--yes", "--limit", "1").rows
    assert (first["id"], first["values"], first["deliveries"]) == ("u", ["urgent"], 0)
    done = queue("drain", path, "--yes")
    assert done.lines == ["g1", "low", "later", "g2"]
    assert "4 drained" in done.err
    assert "1 left there" in done.err
    held.ack()
    assert jobs.size() == 0
    assert jobs.ensure(Message("u"))


def test_the_consumers_of_a_queue_are_paused_and_resumed(queue, path, jobs):
    jobs.push(Message(payload=b"1"))
    assert queue("pause", path).err == f"{path} is paused\n"
    assert queue("pause", path).err == f"{path} is paused already\n"
    assert "paused" in queue("ls", path).out
    assert jobs.pop(1, 0.5) == []
    assert queue("resume", path).err == f"{path} resumes\n"
    assert len(jobs.pop(1, 30.0)) == 1


def test_what_an_operator_gets_wrong_is_said_in_one_line_and_changes_nothing(
    queue, path, jobs, znode_root
):
    jobs.push(Message(payload=b"1"))
    plain = f"{znode_root}/plain"
    assert queue("put", plain, "a").code == 0
    mistakes: list[tuple[list[str], str]] = [
        (["ls", path, "--lock-path", "/locks"], "it has no --lock-path"),
        (["put", path, "--header", "nothing", "a"], "is not KEY=VALUE"),
        (["put", plain, "--kind", "dyno", "a"], "is not a Dyno queue"),
        (["put", plain, "--shard", "a", "a"], "--shard is for Dyno queues"),
        (["ack", plain, "queue-0000000000"], "leaderq queue ack is for Dyno queues"),
        (["purge", path], "give --yes"),
        (["requeue", path], "say which letters"),
        (["requeue", path, "--all", "--rate", "0"], "--rate"),
    ]
    for arguments, said in mistakes:
        queue(*arguments).assert_refused(said)
    assert jobs.size() == 1
