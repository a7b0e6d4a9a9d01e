from __future__ import annotations

import concurrent.futures
import struct
from collections.abc import Callable

import kazoo.exceptions as theirs
import pytest
from kazoo.security import OPEN_ACL_UNSAFE

from leaderq import errors
from leaderq.zookeeper import wire
from leaderq.zookeeper.requests import Answer, Reply
from leaderq.zookeeper.translation import NotSent, error_of, translated
from leaderq.zookeeper.wire import AddWatch, ChildData, Create, Failed, GetData, Multi, MultiRead

END = struct.pack("!iBi", -1, 1, -1)
STAT = wire.Stat(*range(1, 12))
STAT_BYTES = struct.pack("!qqqqiiiqiiq", *range(1, 12))


def server_path(path: str, open_ended: bool) -> str:
    return "/root" + path


number = struct.Struct("!i").pack


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


def header(kind: int) -> bytes:
    return struct.pack("!iBi", kind, 0, -1)


ACL = struct.pack("!ii", 1, 31) + text("world") + text("anyone")
A = text("/root/a")


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (Create("/é", b"x"), header(1) + text("/root/é") + text("x") + ACL + number(0)),
        (Create("/a", b"", ephemeral=True), header(1) + A + text("") + ACL + number(1)),
        (Create("/a", b"", sequential=True), header(1) + A + text("") + ACL + number(2)),
        (Create("/a", b"", True, True), header(1) + A + text("") + ACL + number(3)),
        (wire.SetData("/a", b"y", 7), header(5) + A + text("y") + number(7)),
        (wire.Delete("/a"), header(2) + A + number(-1)),
        (wire.Check("/a", 0), header(13) + A + number(0)),
    ],
)
def test_an_operation_of_a_multi_is_packed_as_the_server_reads_it(operation, body):
    assert Multi([operation], server_path, OPEN_ACL_UNSAFE).serialize() == body + END


def test_a_multi_is_its_operations_in_order_and_data_that_changes_later_is_not_sent():
    data = bytearray(20_000)
    operations = [Create("/a", b"1"), Create("/b", data), Create("/c-", b"2", sequential=True)]
    operations += [Create("/c-", b"3", sequential=True)]
    request = Multi(operations, server_path, OPEN_ACL_UNSAFE)
    each = [Multi([one], server_path, OPEN_ACL_UNSAFE).serialize() for one in operations]
    data[:] = b"x" * 20_000
    assert request.serialize() == b"".join(one[: -len(END)] for one in each) + END


def test_the_results_of_a_multi_stand_in_the_order_of_its_operations():
    reply = header(1) + text("/root/a") + header(5) + STAT_BYTES + header(2) + header(13) + END
    assert Multi.deserialize(reply, 0) == ["/root/a", STAT, None, None]


def test_a_failed_multi_tells_who_failed_and_who_was_rolled_back():
    reply = b"".join(header(-1) + struct.pack("!i", code) for code in (0, -101, -2)) + END
    results = Multi.deserialize(b"???" + reply, 3)
    assert results == [Failed(0), Failed(-101), Failed(-2)]
    assert [one.is_consequence for one in results] == [True, False, True]


def test_reads_are_packed_without_watches():
    body = header(4) + text("/root/a") + b"\0" + header(8) + text("/root/b") + b"\0" + END
    assert MultiRead([GetData("/a"), wire.GetChildren("/b")], server_path).serialize() == body


def test_each_read_has_its_own_outcome():
    reply = header(4) + text("data") + STAT_BYTES + header(-1) + number(-101)
    reply += header(8) + number(2) + text("x") + text("y")
    reply += header(4) + number(-1) + STAT_BYTES + END
    read = MultiRead.deserialize(reply, 0)
    assert read == [(b"data", STAT), Failed(-101), ["x", "y"], (b"", STAT)]


def test_children_are_read_by_name_and_each_has_its_own_outcome():
    body = header(4) + text("/root/a") + b"\0" + header(4) + text("/root/\xe9") + b"\0" + END
    assert ChildData("/root/", ["a", "\xe9"]).serialize() == body
    reply = header(4) + text("data") + STAT_BYTES + header(-1) + number(-101)
    reply += header(4) + struct.pack("!i", -1) + STAT_BYTES + END
    known = STAT.ctime_ms, STAT.version
    assert ChildData.deserialize(reply, 0) == [(b"data", *known), Failed(-101), (b"", *known)]


def test_watches_are_added_and_removed_by_path_and_mode():
    assert AddWatch("/a", 1).serialize() == text("/a") + struct.pack("!i", 1)
    assert wire.RemoveWatches("/a", 5).serialize() == text("/a") + struct.pack("!i", 5)


def test_data_never_shows_in_the_repr_of_a_request():
    assert "secret" not in repr(Multi([Create("/a", b"secret")], server_path, OPEN_ACL_UNSAFE))


def test_what_is_no_operation_is_refused():
    for strange in (None, GetData("/a")):
        with pytest.raises(TypeError, match="not an operation"):
            Multi([strange], server_path, OPEN_ACL_UNSAFE)
    with pytest.raises(TypeError):
        MultiRead([wire.Delete("/a")], server_path)


def test_requests_have_the_numbers_of_the_protocol():
    types = (Multi.type, MultiRead.type, ChildData.type, AddWatch.type, wire.RemoveWatches.type)
    assert types == (14, 22, 22, 106, 18)
    assert (wire.WatchMode.NODE, wire.WatchMode.TREE, wire.WatchMode.REMOVE) == (0, 1, {0: 4, 1: 5})
    assert (wire.MAX_REQUEST_BYTES, wire.HEADER_BYTES) == (0xFFFFF, 8)
    assert AddWatch.deserialize(b"", 0) is True


def test_only_what_is_created_with_a_number_may_end_in_a_slash():
    asked: list[tuple[str, bool]] = []

    def server_path(path: str, open_ended: bool) -> str:
        asked.append((path, open_ended))
        return path

    ops = [Create("/a/", sequential=True), Create("/b"), wire.SetData("/c", b"")]
    Multi([*ops, wire.Delete("/d"), wire.Check("/e")], server_path, [])
    MultiRead([GetData("/f"), wire.GetChildren("/g")], server_path)
    expected = [("/a/", True), *((f"/{name}", False) for name in "bcdefg")]
    assert asked == expected


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (theirs.NoNodeError, errors.NoNode, "no such znode"),
        (theirs.NodeExistsError, errors.NodeExists, "exists already"),
        (theirs.BadVersionError, errors.BadVersion, "another version"),
        (theirs.NotEmptyError, errors.NotEmpty, "has children"),
        (theirs.ConnectionLoss, errors.ConnectionLost, "outcome is unknown"),
        (NotSent, errors.NotConnected, "was not sent"),
        (theirs.SessionExpiredError, errors.SessionExpired, "is over"),
        (theirs.ConnectionClosedError, errors.SessionClosed, "is closed"),
        (theirs.SessionMovedError, errors.ConnectionLost, "another server"),
        (theirs.NoAuthError, errors.NoPermission, "check the znode's ACL"),
        (theirs.AuthFailedError, errors.AccessRefused, "check user"),
        (theirs.UnimplementedError, errors.ZooKeeperError, "3.6 or newer"),  # multiRead
        (RuntimeError, errors.ZooKeeperError, "RuntimeError"),
    ],
)
def test_each_error_of_kazoo_has_one_of_ours(theirs, ours, said):
    cause = theirs()
    error = translated(cause, "/a/b", 3)
    assert type(error) is ours
    assert error.__cause__ is cause
    assert said in str(error)
    assert "/a/b" in str(error)
    assert translated(error) is error


def test_who_catches_a_kind_of_error_catches_its_kinds_too():
    assert issubclass(errors.NoPermission, errors.AccessRefused)
    assert issubclass(errors.NoPermission, errors.ZooKeeperError)
    assert issubclass(errors.NotConnected, errors.ConnectionLost)
    assert translated(theirs.NoAuthError(), "/a").path == "/a"


def test_a_code_in_a_multi_becomes_its_error_with_path_and_index():
    error = error_of(Failed(-110), "/a", 2)
    assert isinstance(error, errors.NodeExists)
    assert (error.path, error.index) == ("/a", 2)


def made() -> tuple[list[Callable[[], object]], Answer[int], Reply[int]]:
    jobs: list[Callable[[], object]] = []
    answer: Answer[int] = Answer(jobs.append)
    return jobs, answer, Reply(answer, int, lambda exc: translated(exc, "/a"))


def test_a_reply_is_converted_and_callbacks_wait_for_their_thread():
    jobs, answer, reply = made()
    heard: list[object] = []
    answer.add_done_callback(heard.append)
    reply.set("7")
    assert answer.result(0) == 7
    assert heard == []
    while jobs:
        jobs.pop(0)()
    assert heard == [answer]


def test_of_several_requests_with_one_answer_the_last_reply_is_it_or_any_error():
    for error in (None, theirs.NoNodeError()):
        _, answer, last = made()
        former = Reply(answer, last.convert, last.translate, is_last=False)
        former.set("7")
        assert not answer.done()
        former.set("8") if error is None else former.set_exception(error)
        last.set("9")
        if error is None:
            assert answer.result(0) == 9
        else:
            assert (type(answer.exception(0)), answer.exception(0).path) == (errors.NoNode, "/a")


def test_replies_that_are_late_or_repeated_are_harmless():
    for act in (lambda reply, _: reply.set("1"), lambda _, answer: answer.cancel()):
        _, answer, reply = made()
        act(reply, answer)
        reply.set("2")
        reply.set_exception(theirs.NoNodeError())
        assert concurrent.futures.wait([answer], timeout=0).done == {answer}
        assert answer.cancelled() or answer.result(0) == 1


def test_a_reply_that_cannot_be_converted_fails_the_request_and_nothing_else():
    _, answer, reply = made()
    reply.set("no number")
    assert "ValueError" in str(answer.exception(0))
