"""The numbers of ZooKeeper's protocol, and paths at their edges."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq.errors import ConfigurationError
from leaderq.zookeeper import wire
from leaderq.zookeeper.paths import validated_path
from leaderq.zookeeper.wire import (
    AddWatch,
    Check,
    ChildData,
    Create,
    Delete,
    GetChildren,
    GetData,
    Multi,
    MultiRead,
    RemoveWatches,
    SetData,
    WatchMode,
)


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


@pytest.mark.parametrize("strange", [None, GetData("/a")])
def test_what_is_not_an_operation_is_refused(strange: Any) -> None:
    with pytest.raises(TypeError, match="not an operation"):
        Multi([strange], lambda path, _: path, [])


@pytest.mark.parametrize("path", ["/", "/a", "/a/b"])
def test_a_path_is_returned_as_it_is(path: str) -> None:
    assert validated_path(path) == validated_path(path, open_ended=True) == path


def test_a_path_may_end_in_a_slash_only_where_a_number_follows() -> None:
    assert validated_path("/a/", open_ended=True) == "/a/"
    for path, open_ended in (("/a/", False), ("//", True), ("//", False), ("/a//", True)):
        with pytest.raises(ConfigurationError, match="empty part"):
            validated_path(path, open_ended=open_ended)
    with pytest.raises(ConfigurationError, match="begin it with '/'"):
        validated_path("", open_ended=True)
    with pytest.raises(ConfigurationError, match="begin it with '/'"):
        validated_path("a")
