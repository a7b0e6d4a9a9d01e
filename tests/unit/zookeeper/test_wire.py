"""The bytes, as Apache ZooKeeper's jute records lay them out."""

from __future__ import annotations

import struct

import pytest
from kazoo.security import OPEN_ACL_UNSAFE

from leaderq.zookeeper import wire
from leaderq.zookeeper.wire import (
    AddWatch,
    Check,
    ChildData,
    Create,
    Delete,
    Failed,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    RemoveWatches,
    SetData,
    Stat,
    WatchMode,
)

END = struct.pack("!iBi", -1, 1, -1)
STAT_FIELDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
STAT_BYTES = struct.pack("!qqqqiiiqiiq", *STAT_FIELDS)


def server_path(path: str, open_ended: bool) -> str:
    return "/root" + path


def text(value: str) -> bytes:
    return struct.pack("!i", len(value.encode())) + value.encode()


def header(kind: int) -> bytes:
    return struct.pack("!iBi", kind, 0, -1)


ACL = struct.pack("!ii", 1, 31) + text("world") + text("anyone")


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (Create("/é", b"x"), header(1) + text("/root/é") + text("x") + ACL + struct.pack("!i", 0)),
        (
            Create("/a", b"", ephemeral=True),
            header(1) + text("/root/a") + text("") + ACL + struct.pack("!i", 1),
        ),
        (
            Create("/a", b"", sequential=True),
            header(1) + text("/root/a") + text("") + ACL + struct.pack("!i", 2),
        ),
        (
            Create("/a", b"", True, True),
            header(1) + text("/root/a") + text("") + ACL + struct.pack("!i", 3),
        ),
        (SetData("/a", b"y", 7), header(5) + text("/root/a") + text("y") + struct.pack("!i", 7)),
        (Delete("/a"), header(2) + text("/root/a") + struct.pack("!i", -1)),
        (Check("/a", 0), header(13) + text("/root/a") + struct.pack("!i", 0)),
    ],
)
def test_an_operation_of_a_multi_is_packed_as_the_server_reads_it(
    operation: Create, body: bytes
) -> None:
    assert Multi([operation], server_path, OPEN_ACL_UNSAFE).serialize() == body + END


def test_a_multi_is_its_operations_in_order_and_data_that_changes_later_is_not_sent() -> None:
    data = bytearray(20_000)
    operations = [Create("/a", b"1"), Create("/b", data), Create("/c-", b"2", sequential=True)]  # type: ignore[arg-type]
    operations += [Create("/c-", b"3", sequential=True)]
    request = Multi(operations, server_path, OPEN_ACL_UNSAFE)
    one_by_one = [
        Multi([one], server_path, OPEN_ACL_UNSAFE).serialize()[: -len(END)] for one in operations
    ]
    data[:] = b"x" * 20_000
    assert request.serialize() == b"".join(one_by_one) + END


def test_the_results_of_a_multi_stand_in_the_order_of_its_operations() -> None:
    reply = header(1) + text("/root/a") + header(5) + STAT_BYTES + header(2) + header(13) + END
    assert Multi.deserialize(reply, 0) == ["/root/a", Stat(*STAT_FIELDS), None, None]


def test_a_failed_multi_tells_who_failed_and_who_was_rolled_back() -> None:
    reply = b"".join(header(-1) + struct.pack("!i", code) for code in (0, -101, -2)) + END
    results = Multi.deserialize(b"???" + reply, 3)
    assert results == [Failed(0), Failed(-101), Failed(-2)]
    assert [one.is_consequence for one in results] == [True, False, True]


def test_reads_are_packed_without_watches() -> None:
    body = header(4) + text("/root/a") + b"\0" + header(8) + text("/root/b") + b"\0" + END
    assert MultiRead([GetData("/a"), GetChildren("/b")], server_path).serialize() == body


def test_each_read_has_its_own_outcome() -> None:
    reply = header(4) + text("data") + STAT_BYTES + header(-1) + struct.pack("!i", -101)
    reply += (
        header(8)
        + struct.pack("!i", 2)
        + text("x")
        + text("y")
        + header(4)
        + struct.pack("!i", -1)
        + STAT_BYTES
        + END
    )
    stat = Stat(*STAT_FIELDS)
    assert MultiRead.deserialize(reply, 0) == [
        (b"data", stat),
        Failed(-101),
        ["x", "y"],
        (b"", stat),
    ]


def test_children_are_read_by_name_and_each_has_its_own_outcome() -> None:
    body = header(4) + text("/root/a") + b"\0" + header(4) + text("/root/\xe9") + b"\0" + END
    assert ChildData("/root/", ["a", "\xe9"]).serialize() == body
    reply = header(4) + text("data") + STAT_BYTES + header(-1) + struct.pack("!i", -101)
    reply += header(4) + struct.pack("!i", -1) + STAT_BYTES + END
    stat = Stat(*STAT_FIELDS)
    assert ChildData.deserialize(reply, 0) == [
        (b"data", stat.ctime_ms, stat.version),
        Failed(-101),
        (b"", stat.ctime_ms, stat.version),
    ]


def test_watches_are_added_and_removed_by_path_and_mode() -> None:
    assert AddWatch("/a", 1).serialize() == text("/a") + struct.pack("!i", 1)
    assert RemoveWatches("/a", 5).serialize() == text("/a") + struct.pack("!i", 5)


def test_data_never_shows_in_the_repr_of_a_request() -> None:
    assert "secret" not in repr(Multi([Create("/a", b"secret")], server_path, OPEN_ACL_UNSAFE))


def test_what_is_no_operation_is_refused() -> None:
    for strange in (None, GetData("/a")):
        with pytest.raises(TypeError, match="not an operation"):
            Multi([strange], server_path, OPEN_ACL_UNSAFE)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        MultiRead([Delete("/a")], server_path)  # type: ignore[list-item]


def test_requests_have_the_numbers_of_the_protocol() -> None:
    types = (Multi.type, MultiRead.type, ChildData.type, AddWatch.type, RemoveWatches.type)
    assert types == (14, 22, 22, 106, 18)
    assert (WatchMode.NODE, WatchMode.TREE, WatchMode.REMOVE) == (0, 1, {0: 4, 1: 5})
    assert (wire.MAX_REQUEST_BYTES, wire.HEADER_BYTES) == (0xFFFFF, 8)
    assert AddWatch.deserialize(b"", 0) is True


def test_only_what_is_created_with_a_number_may_end_in_a_slash() -> None:
    asked: list[tuple[str, bool]] = []

    def server_path(path: str, open_ended: bool) -> str:
        asked.append((path, open_ended))
        return path

    ops = [
        Create("/a/", sequential=True),
        Create("/b"),
        SetData("/c", b""),
        Delete("/d"),
        Check("/e"),
    ]
    Multi(ops, server_path, [])
    MultiRead([GetData("/f"), GetChildren("/g")], server_path)
    expected = [("/a/", True), *((f"/{name}", False) for name in "bcdefg")]
    assert asked == expected
