"""A PostgreSQL server of the session, where the machine has one installed; a database for each
test.

It listens on the loopback interface only, in a temporary folder that vanishes with it, and does not
survive the session. PostgreSQL refuses to run as root, so a root session runs it as ``postgres`` or
``nobody``.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from leaderq.testing import eventually
from leaderq.testing.java_server import WatchedProcess
from leaderq.testing.ports import lease_port

# Runs the rest of the command line as another user; what WatchedProcess knows is then the server's
# own process id.
_AS_USER = (
    "import os, sys; u, g = map(int, sys.argv[1:3]); os.setgroups([]); os.setgid(g); os.setuid(u); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
SUPERUSER = "leaderq"


@dataclass(frozen=True)
class Database:
    """A running server, or one database of it."""

    port: int
    name: str

    def connect(self, *, options: str = "", **more: object) -> object:
        """A connection of psycopg 3 to it."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=SUPERUSER,
            dbname=self.name,
            options=options,
            connect_timeout=10,
            **more,
        )


@contextmanager
def served(
    name: str, command: Callable[[Path, int], list[str]], answers: Callable[[int], object]
) -> Iterator[int]:
    """The port of a server that was started in a folder of its own, once it answers."""
    folder, port = Path(tempfile.mkdtemp(prefix=f"leaderq-{name}-")), lease_port()
    log = folder / "log"
    log.touch()

    def is_up() -> bool:
        assert process.exit_code is None, f"{name} ended:\n{log.read_text()[-2000:]}"
        answers(port.number)
        return True

    try:
        line = command(folder, port.number)
        env = {**os.environ, "LC_ALL": "C"}
        process = WatchedProcess(line, log_path=log, folder=folder, env=env)
        try:
            eventually(is_up, interval_s=0.1, message=f"{name} answers")
            yield port.number
        finally:
            process.send(signal.SIGINT)  # PostgreSQL waits for clients to leave after a SIGTERM
            process.end(grace_s=10)
    finally:
        port.release()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server():
    """A running PostgreSQL server."""
    programs = _programs()
    if programs is None:
        pytest.skip(
            "PostgreSQL is not installed here (no initdb found); on Debian and Ubuntu: apt-get"
            " install postgresql"
        )
    pytest.importorskip("psycopg", reason="psycopg is not installed; pip install -e '.[dev]'")
    with served(
        "postgres",
        lambda folder, port: _command(programs, folder, port),
        lambda port: Database(port, "postgres").connect().close(),
    ) as port:
        yield Database(port, "postgres")


@pytest.fixture
def postgres(postgres_server):
    """A database of this test's own."""
    name = f"t_{uuid.uuid4().hex}"
    with postgres_server.connect(autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return Database(postgres_server.port, name)


def _programs() -> Path | None:
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres"):
        return Path(on_path).parent
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3])
    )
    return versions[-1].parent if versions else None


def _command(programs: Path, folder: Path, port: int) -> list[str]:
    prefix = _other_user(folder)
    data = str(folder / "data")
    made = subprocess.run(
        [
            *prefix, str(programs / "initdb"), "-D", data, "-U", SUPERUSER, "-A", "trust",
            "-E", "UTF8", "--locale=C", "--no-sync",
        ],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, f"initdb failed:\n{made.stdout}{made.stderr}"
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        # nobody pulls this machine's plug; kill -9 of a client loses nothing either way
        "fsync": "off",
        "autovacuum": "off",
        "shared_buffers": "16MB",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return [*prefix, str(programs / "postgres"), "-D", data, *options]


def _other_user(folder: Path) -> list[str]:
    if os.geteuid() != 0:
        return []
    known = {user.pw_name: user for user in pwd.getpwall()}
    user = known.get("postgres") or known.get("nobody")
    if user is None:
        pytest.skip(
            "PostgreSQL refuses to run as root, and there is neither a user 'postgres' nor 'nobody'"
        )
    os.chown(folder, user.pw_uid, user.pw_gid)
    return [sys.executable, "-c", _AS_USER, str(user.pw_uid), str(user.pw_gid)]
