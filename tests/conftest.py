"""For all rings. The fixtures that give servers come from leaderq's own pytest plugin (``leaderq.testing.plugin``)."""

from __future__ import annotations

import os
import signal

import pytest
from postgres import postgres, postgres_server  # noqa: F401  (fixtures)


def pytest_configure(config: pytest.Config) -> None:
    """Without the plugin every test on a server would fail for an unknown fixture, which says nothing of the cause."""
    if not config.pluginmanager.has_plugin("leaderq"):
        raise pytest.UsageError("leaderq is not installed in this environment; run: pip install -e '.[dev]' (or: make test)")
    # A shell without job control lets what it starts in the background ignore Ctrl-C, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer has set for their own use of leaderq must not change a test; what chooses the servers stays."""
    keep = {
        "LEADERQ_CACHE",
        "LEADERQ_JAVA",
        "LEADERQ_SERVERS",
        "LEADERQ_TEST_FAULTS",
        "LEADERQ_TEST_PATIENCE",
        "LEADERQ_TEST_SEED",
    }
    for name in os.environ:
        if name.startswith("LEADERQ_") and name not in keep:
            monkeypatch.delenv(name)
