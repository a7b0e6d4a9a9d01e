"""A Redis server of the session, where the machine has one installed; it keeps nothing."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from postgres import served


@pytest.fixture(scope="session")
def redis_url():
    """The address of a running Redis server."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("Redis is not installed here; on Debian: apt-get install redis-server")
    redis: Any = pytest.importorskip("redis", reason="pip install -e '.[dev]'")
    with served(
        "redis",
        lambda _folder, port: [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""],
        lambda port: redis.Redis(port=port).ping(),
    ) as port:
        yield f"redis://127.0.0.1:{port}"
