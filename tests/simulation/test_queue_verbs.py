"""``leaderq queue`` on what others have left, spoilt or taken away, in simulated time."""

from __future__ import annotations

import io
from contextlib import closing, nullcontext
from typing import Any
from unittest.mock import Mock

import pytest

from leaderq.admin.dyno_queues import DynoAdmin
from leaderq.cli import connecting, main
from leaderq.dyno import Message
from leaderq.dyno.message import Frame
from leaderq.errors import NoPermission
from leaderq.queues.admin import QueueAdmin
from leaderq.queues.wire.payload import encode
from leaderq.queues.wire.znodes import QueuePaths
from simulation.scenarios import Guest, scene
from simulation.test_dyno_defects import D, sides
from simulation.test_queue_windows import LOCKS, Q, put

LETTER = encode([b"d"])


@pytest.fixture
def verb(monkeypatch, capsys) -> Any:
    """Runs a verb on the session of a guest; returns its exit code, and what it wrote."""
    monkeypatch.setattr(connecting, "quiet", lambda: None)

    def run(who: Guest, *words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(connecting, "open_session", lambda _: nullcontext(who.session))
        code = who.do(lambda: main(["queue", *words]))
        return code, *capsys.readouterr()

    return run


@scene(1)
def test_one_queue_that_cannot_be_read_does_not_hide_the_others(s, verb, monkeypatch):
    (a,) = s.guests("a")
    listed = a.session.children

    def refusing(path, **options):
        if path == "/in/secret":
            raise NoPermission("this user may not list it", path=path)
        return listed(path, **options)

    monkeypatch.setattr(a.session, "children", refusing)
    for path in ("mixed/qn-0000000000", "mixed/queue-0000000001", "q/queue-0000000000", "secret"):
        s.ask(lambda beside, path=path: beside.ensure_path(f"/in/{path}"))
    code, out, err = verb(a, "ls", "/in")
    assert (code, [line.split()[0] for line in out.splitlines()[1:]]) == (0, ["/in/q"])
    assert "/in/mixed is not shown: items of a simple queue and of another" in err
    assert "/in/secret is not shown: this user may not list it" in err
    refused = Mock(side_effect=NoPermission("this user may not list it", path="/in/secret"))
    monkeypatch.setattr(a.session, "children", refused)
    code, _, err = verb(a, "peek", "/in/secret/nowhere")
    assert (code, "there is no queue at /in/secret/nowhere on" in err) == (2, True)


@scene(1)
def test_a_queue_whose_path_is_gone_is_shown_with_what_is_beside_it(s, verb):
    (a,) = s.guests("a")
    s.ask(lambda beside: beside.ensure_path("/gone-dead/queue-0000000000"))
    code, out, err = verb(a, "ls", "/gone")
    assert (code, "its path is not there" in out, err) == (0, True, "")


@scene(1)
def test_a_lock_path_is_removed_with_its_queue_only_if_it_is_empty(s, verb):
    (a,) = s.guests("a")
    s.ask(lambda beside: beside.ensure_path("/locks/somebody/else"))
    for path in ("/locks", "/locks/somebody/else"):
        s.ask(lambda beside: beside.ensure_path("/q"))
        assert verb(a, "rm", "/q", "--lock-path", path, "--yes")[0] == 0
        s.until(lambda: "/locks/somebody" in s.cluster.znodes())
    left = [path for path in s.cluster.znodes() if path[:2] in ("/l", "/q")]
    assert left == ["/locks", "/locks/somebody"]


@scene(1)
def test_a_path_of_side_data_that_holds_something_else_is_not_removed(s, verb):
    (a,) = s.guests("a")
    for path in ("/team/q", "/team/tallies", "/team/locks", "/team/precious"):
        s.ask(lambda beside, path=path: beside.ensure_path(path))
    words = ["rm", "/team/q", "--meta-path", "/team", "--lock-path", "/team/locks", "--yes"]
    code, _, err = verb(a, *words)
    assert (code, "is in use: 2 foreign znodes in the side data; purge" in err) == (1, True)
    assert "/team/precious" in s.cluster.znodes()


@scene(1)
def test_what_was_removed_is_told_to_programs_although_the_next_one_was_refused(s, verb):
    (a,) = s.guests("a")
    s.ask(lambda beside: beside.ensure_path("/q"))
    code, out, _ = verb(a, "rm", "/q", "/absent", "--yes", "--json")
    assert (code, out) == (2, '{"deleted": {"/q": 1}}\n')


@scene(1)
def test_letters_that_cannot_be_moved_are_said_to_be_left(s, verb):
    (a,) = s.guests("a")
    s.ask(lambda beside: beside.ensure_path("/q-dead/queue-0000000000/child"))
    s.ask(lambda beside: beside.set("/q-dead/queue-0000000000", LETTER))
    why = "1 left, because their ids are those of other messages, or they have children"
    sent_back = verb(a, "requeue", "/q", "--all", "--yes")
    assert sent_back == (0, "", f"0 sent back to /q; {why}; 1 remain\n")
    assert verb(a, "dead", "/q", "--drop", "--yes") == (0, "", f"0 dropped; {why}\n")


@scene(1)
def test_what_has_to_stay_in_a_queue_does_not_count_as_drained(s):
    """The first two are held by a consumer, or have their payloads in a store."""
    (a,) = sides(s, "a")
    names = put(s, *"abcde")
    s.ask(lambda beside: [beside.create(f"{LOCKS}/{one}", ephemeral=True) for one in names[:2]])
    a.push([Message(payload=one.encode()) for one in "abcde"])
    messages = sorted(one for one in s.cluster.znodes() if "/messages/" in one)
    stored = Frame(b"", body="elsewhere").packed()
    s.ask(lambda beside: [beside.set(one, stored) for one in messages[:2]])

    def drained(admin: Any) -> list[bytes]:
        out: list[bytes] = []
        with admin.drain() as draining:
            for batch in draining.batches(2):
                for one in batch:
                    out += one.items
                    draining.keep(one)
        return out

    def both() -> list[list[bytes]]:
        session = a.who.session
        with closing(DynoAdmin(session, D)) as dyno:
            return [drained(admin) for admin in (QueueAdmin(session, QueuePaths(Q, LOCKS)), dyno)]

    assert a.who.do(both) == [[b"c", b"d"]] * 2


@scene(1)
def test_numbers_that_no_clock_can_hold_are_refused_and_spoil_no_other_line(s, verb, monkeypatch):
    (a,) = s.guests("a")
    put(s, "a")
    for words in (("put", "/d", "--delay-s", "1e308", "x"), ("purge", Q, "--older-than", "1e308")):
        code, _, err = verb(a, *words)
        assert (code, "is more than 3000000000" in err) == (2, True)
    lines = b'{"value":"1"}\n{"value":"2","due_ms":1%s}\n{"value":"3"}\n' % (b"0" * 400)
    for path, kind in (("/delays", "delay"), (D, "dyno")):
        lines = lines.replace(b'"1"', b'"1","due_ms":1').replace(b'"3"', b'"3","due_ms":1')
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
        code, _, err = verb(a, "put", path, "--kind", kind, "--from-json")
        assert (code, "2 stored" in err, "of more than 64 bits" in err) == (1, True, True)


@pytest.mark.parametrize("path", ["/", "", "//", "/zookeeper", "/zookeeper/quota", "other"])
@scene(1)
def test_a_path_that_is_no_queue_of_anybodys_is_not_removed_by_force(s, verb, path):
    (a,) = s.guests("a")
    put(s, "a")
    s.ask(lambda beside: beside.ensure_path("/others/znode"))
    before = s.cluster.znodes().keys()
    for words in ((path,), (Q, path)):
        code, _, err = verb(a, "rm", *words, "--force", "--yes")
        assert (code, "leaderq: error:" in err) == (2, True)
        assert path or "must be absolute" in err
    assert s.cluster.znodes().keys() >= before
    assert verb(a, "rm", f"{Q}/", "--force", "--yes")[0] == 0
    assert s.ask(lambda beside: beside.exists("/others/znode")) is not None


@scene(1)
def test_what_was_stored_is_said_although_standard_output_is_full(s, verb, monkeypatch):
    (a,) = s.guests("a")
    refuse = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("leaderq.cli.output.write_json", refuse)
    code, _, err = verb(a, "put", Q, "a", "--json")
    assert (code, "1 stored in /q" in err) == (1, True)
