from __future__ import annotations

import pytest

from leaderq.errors import ConfigurationError
from leaderq.zookeeper.paths import parsed_address


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zk", "zk:2181", ""),
        ("zk:2182", "zk:2182", ""),
        ("zk/", "zk:2181", ""),
        ("a:1, b:2/app", "a:1,b:2", "/app"),
        ("a:1,b/app/x/", "a:1,b:2181", "/app/x"),
        ("[::1]:2181", "[::1]:2181", ""),
        ("[fe80::1]/app", "[fe80::1]:2181", "/app"),
        ("::1", "[::1]:2181", ""),
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, hosts: str, chroot: str) -> None:
    address = parsed_address(text)
    assert (address.hosts, address.chroot) == (hosts, chroot)
    assert parsed_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "empty host"),
        ("a,,b", "empty host"),
        (":2181", "empty host"),
        ("a:", "port"),
        ("a:zero", "port 'zero'"),
        ("a:0", "port '0'"),
        ("a:99999", "port '99999'"),
        ("a:-1", "port '-1'"),
        ("a b:1", "host 'a b'"),
        ("[::1:2181", "empty host"),
        ("[::1]x", "empty host"),
        ("user@a:1", "host 'user@a'"),
        ("a:1//x", "empty part"),
        ("a:1/x/../y", "'.' or '..'"),
    ],
)
def test_a_malformed_address_is_refused_with_value_place_and_remedy(text: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed_address(text, source="--zookeeper")
    assert hint in str(caught.value)
    assert repr(text) in str(caught.value)
    assert "--zookeeper" in str(caught.value)
    assert "host:port,host:port/chroot" in str(caught.value)


def test_all_problems_of_an_address_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parsed_address("a:x,,b:70000")
    assert len(caught.value.problems) == 3
