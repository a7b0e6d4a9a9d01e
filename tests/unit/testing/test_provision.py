from __future__ import annotations

import pytest

from leaderq.errors import ConfigurationError
from leaderq.testing import provision
from leaderq.testing.fault_proxy import FaultProxy


def test_an_unknown_kind_of_servers_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADERQ_SERVERS", "podman")
    with pytest.raises(ConfigurationError, match=r"'podman'.*'jars' or 'docker'"):
        provision.provided("KafkaBroker")


@pytest.mark.parametrize("upstream", ["", "host", "host:port", "a:1,b:2"])
def test_a_proxy_before_no_single_server_is_refused(upstream: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        FaultProxy(upstream)
