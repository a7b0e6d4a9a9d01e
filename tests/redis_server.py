"""A Redis server of the session, where the machine has one installed; it keeps nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leaderq.testing import eventually
from leaderq.testing.java_server import WatchedProcess
from leaderq.testing.ports import lease_port


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The address of a running Redis server."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("Redis is not installed here; on Debian: apt-get install redis-server")
    redis: Any = pytest.importorskip("redis", reason="pip install -e '.[dev]'")
    folder = Path(tempfile.mkdtemp(prefix="leaderq-redis-"))
    port = lease_port()
    url = f"redis://127.0.0.1:{port.number}"
    command = [program, "--port", str(port.number), "--bind", "127.0.0.1", "--save", ""]
    process = WatchedProcess(command, log_path=folder / "log", folder=folder, env=dict(os.environ))

    def answers() -> bool:
        assert process.exit_code is None, (folder / "log").read_text()[-2000:]
        return bool(redis.Redis.from_url(url).ping())

    try:
        eventually(answers, interval_s=0.1, message="Redis answers")
        yield url
    finally:
        process.end(grace_s=5)
        port.release()
        shutil.rmtree(folder, ignore_errors=True)
