from __future__ import annotations

import pytest

from leaderq.errors import ConfigurationError
from leaderq.zookeeper.paths import is_at_or_below, join, name_of, parent_of, validated_path


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a.b/..c", "/é", "/a b"])
def test_a_good_path_is_returned_as_it_is(path: str) -> None:
    assert validated_path(path) == validated_path(path, open_ended=True) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "//",
        "/a/",
        "/a//b",
        "/.",
        "/a/..",
        "/a/./b",
        "/a\0b",
        "/\x1f",
        "/\x7f",
        "/\ue000",
        "/\uffff",
    ],
)
def test_a_path_that_zookeeper_would_refuse_is_named(path: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        validated_path(path)
    assert repr(path) in str(caught.value)


def test_a_path_may_end_in_a_slash_only_where_a_number_follows() -> None:
    assert validated_path("/a/", open_ended=True) == "/a/"
    for path, open_ended in (("/a/", False), ("//", True), ("//", False), ("/a//", True)):
        with pytest.raises(ConfigurationError, match="empty part"):
            validated_path(path, open_ended=open_ended)
    for path in ("", "a"):
        with pytest.raises(ConfigurationError, match="begin it with '/'"):
            validated_path(path, open_ended=not path)


def test_paths_are_joined_and_taken_apart() -> None:
    assert join("/", "a", "b") == "/a/b"
    assert join("/x", "a") == "/x/a"
    assert (parent_of("/a/b"), parent_of("/a"), parent_of("/")) == ("/a", "/", "/")
    assert name_of("/a/b") == "b"


@pytest.mark.parametrize(
    ("path", "other", "is_below"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
        ("/", "/", True),
    ],
)
def test_a_path_is_below_another_part_by_part(path: str, other: str, is_below: bool) -> None:
    assert is_at_or_below(path, other) is is_below
