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
    ],
)
def test_an_address_is_read_as_people_write_it(text: str, hosts: str, chroot: str) -> None:
    address = parsed_address(text)
    assert (address.hosts, address.chroot) == (hosts, chroot)
    assert parsed_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("", "empty address"),
        ("a:zero", "no usable port in 'a:zero'"),
        ("a b:1", "no usable host name in 'a b:1'"),
        ("::1", "put an IPv6 address in brackets"),
        ("a:1/x,b:2", "once, behind the last address"),
        ("a:1//x", "no usable chroot"),
        ("a:1/x/../y", "no usable chroot"),
        ("a:1/\x01", "control"),
    ],
)
def test_a_malformed_address_is_refused_with_value_and_remedy(text: str, hint: str) -> None:
    """More of them: ``config/test_kinds_of_values.py``."""
    with pytest.raises(ConfigurationError) as caught:
        parsed_address(text)
    assert hint in str(caught.value)
    assert str(caught.value).startswith(("the ZooKeeper address ", "znode path "))
