from __future__ import annotations

import pytest

from leaderq.errors import ConfigurationError
from leaderq.zookeeper import paths
from leaderq.zookeeper.paths import join, own_path, parent_of, parsed_address, validated_path


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a.b/..c", "/é", "/a b"])
def test_a_good_path_is_returned_as_it_is(path):
    assert validated_path(path) == validated_path(path, open_ended=True) == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "a", "//", "/a/", "/a//b", "/.", "/a/..", "/a/./b"),
        *(f"/{one}" for one in "\0\x1f\x7f\ue000\uffff"),
        *(None, 5, b"/a"),
    ],
)
def test_a_path_that_zookeeper_would_refuse_is_named(path):
    with pytest.raises(ConfigurationError) as caught:
        validated_path(path)
    assert repr(path) in str(caught.value)


def test_a_path_may_end_in_a_slash_only_where_a_number_follows():
    assert validated_path("/a/", open_ended=True) == "/a/"
    for path, open_ended in (("/a/", False), ("//", True), ("//", False), ("/a//", True)):
        with pytest.raises(ConfigurationError, match="empty part"):
            validated_path(path, open_ended=open_ended)
    for path in ("", "a"):
        with pytest.raises(ConfigurationError, match="begin it with '/'"):
            validated_path(path, open_ended=not path)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/a", ""),
        ("/zookeepers", ""),
        ("/", "'/' is everybody's"),
        ("/zookeeper", "is the server's"),
        ("/zookeeper/quota", "is the server's"),
        ("a", "begin it with '/'"),
    ],
)
def test_a_queue_has_a_path_of_its_own(path, why):
    if not why:
        assert own_path(path) == path
        return
    with pytest.raises(ConfigurationError, match=why):
        own_path(path)


def test_paths_are_joined_and_taken_apart():
    assert join("/", "a", "b") == "/a/b"
    assert join("/x", "a") == "/x/a"
    assert (parent_of("/a/b"), parent_of("/a"), parent_of("/")) == ("/a", "/", "/")
    assert paths.name_of("/a/b") == "b"


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk/ ", "zk:2181", ""),
        ("a:1, b/app/x/", "a:1,b:2181", "/app/x"),
        ("[fe80::1]/app", "[fe80::1]:2181", "/app"),
    ],
)
def test_an_address_is_read_as_people_write_it(text, hosts, chroot):
    address = parsed_address(text)
    assert (address.hosts, address.chroot) == (hosts, chroot)
    assert parsed_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a:zero", "the ZooKeeper address 'a:zero' .*port"),
        ("a:1/\x01", "znode path .*control"),
        *((wrong, "is no text") for wrong in (None, b"a:1", 2181)),
    ],
)
def test_a_malformed_address_is_refused_with_value_and_remedy(text, said):
    """More of them: ``config/test_kinds_of_values.py``."""
    with pytest.raises(ConfigurationError, match=said):
        parsed_address(text)
