from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Pem, secure_zookeeper, self_signed

from leaderq.testing.ports import lease_port
from leaderq.zookeeper import Session

Connect = Callable[..., Session]


@pytest.fixture
def behind(proxy, znode_root, opened) -> Connect:
    return lambda **options: opened(proxy.address + znode_root, **options)


@pytest.fixture
def closed_port() -> Iterator[str]:
    port = lease_port()
    yield port.address
    port.release()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory) -> dict[str, Path]:
    """Two self-signed certificates, of which one is the server's."""
    folder, made = tmp_path_factory.mktemp("tls"), {}
    for name in ("server", "other"):
        certificate, both = self_signed(folder, name, "IP:127.0.0.1")
        made |= {name: certificate, f"{name}-both": both}
    return made


@pytest.fixture(scope="session")
def tls_address(certificates) -> Iterator[str]:
    with secure_zookeeper(Pem(certificates["server"], certificates["server-both"])) as address:
        yield address
