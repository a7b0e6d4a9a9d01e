"""``python -m compat [--lock] [TEXT]``: only what is called so, such as ``3.6`` or ``python3.12``.

Each server runs from the jars of ``servers.lock``, or from the pinned ones. ``--lock`` resolves
``ROOTS`` again, and writes that file.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from leaderq import connect
from leaderq.errors import ZooKeeperError
from leaderq.testing import KafkaBroker, ZooKeeperServer, jars
from leaderq.testing.java_server import JavaServer

ROOT = Path(__file__).parents[2]
LOCK = Path(__file__).with_name("servers.lock")
TESTS = [f"@{ROOT / 'tests' / path}" for path in ("quick.txt", "compat/tests.txt")]

SERVERS = [("3.6.4", "3.5.2"), ("3.8.4", "3.9.1"), ("3.9.5", "4.3.1")]
TOO_OLD = "3.5.10"
NEWEST = SERVERS[-1]
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
EXTRAS = "confluent,metrics,sasl,servers"
TOOLS = ["hypothesis", "psycopg[binary]", "pytest>=8.2", "pytest-timeout", "pytest-xdist"]

_LOG = "org.slf4j:slf4j-simple:1.7.36"
_METRICS = ("io.dropwizard.metrics:metrics-core:4.2.40", "org.xerial.snappy:snappy-java:1.1.10.8")
ROOTS = {
    f"zookeeper-{TOO_OLD}": (f"org.apache.zookeeper:zookeeper:{TOO_OLD}", _LOG),
    **{
        f"zookeeper-{zookeeper}": (f"org.apache.zookeeper:zookeeper:{zookeeper}", *_METRICS, _LOG)
        for zookeeper, _ in SERVERS[:-1]
    },
    **{
        f"kafka-{kafka}": (f"org.apache.kafka:kafka_2.13:{kafka}", _LOG)
        for _, kafka in SERVERS[:-1]
    },
}
SKIPPED_BY_RIGHT = re.compile(r"given (by|or)|needs? |LEADERQ_")


def server(kind: type[JavaServer], version: str) -> JavaServer:
    """A server of this version, not started."""
    name = f"{kind.jar_set}-{version}"
    return type(kind.__name__, (kind,), {"jar_set": name if name in ROOTS else kind.jar_set})()


def refuses_what_is_too_old() -> str:
    """Nothing if a ZooKeeper that is too old is refused as it should be, else what was wrong."""
    with server(ZooKeeperServer, TOO_OLD) as one:
        try:
            connect(one.address).close()
        except ZooKeeperError as exc:
            return "" if "must be 3.6 or newer" in str(exc) else f"it was refused with {exc!r}"
    return "it was accepted"


def tests_with(python: Path, zookeeper: str, kafka: str, *, also: tuple[str, ...] = ()) -> str:
    """Nothing if the tests pass with these servers, else the end of what was said."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(server(ZooKeeperServer, zookeeper)),
            stack.enter_context(server(KafkaBroker, kafka)),
        ]
        addresses = dict(zip(("ZOOKEEPER", "KAFKA"), (one.address for one in started), strict=True))
        environment = {
            **os.environ,
            **{f"LEADERQ_{what}": address for what, address in addresses.items()},
            "LEADERQ_TEST_PATIENCE": os.environ.get("LEADERQ_TEST_PATIENCE", "3"),
            "PYTHONPATH": str(ROOT),
        }
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "1"]
        done = subprocess.run(
            [*command, *TESTS, *also],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    lines = done.stdout.splitlines()
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    odd = [line for line in skipped if not SKIPPED_BY_RIGHT.search(line)]
    print(f"    {lines[-1].strip('= ')}", flush=True)
    return "" if done.returncode == 0 and not odd else "\n".join([*lines[-60:], *odd])


def interpreter(version: str) -> Path | None:
    """A Python of this version on this machine."""
    homes = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [Path(path) for path in [shutil.which(f"python{version}")] if path]
    for path in [*found, *homes.glob(f"{version}.*/bin/python")]:
        if not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode:
            return path
    return None


def on_python(version: str) -> str | None:
    """The tests on this Python with the newest servers; None if there is no such Python."""
    program = interpreter(version)
    if program is None:
        return None
    home = jars.cache_folder() / "compat" / f"python{version}"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([program, "-m", "venv", home], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--editable", f"{ROOT}[{EXTRAS}]", *TOOLS], check=True)
    return tests_with(python, *NEWEST, also=("tests/unit",))


def write_lock() -> None:
    """Resolve ``ROOTS``, and write down what they need."""
    head = "# Written by python -m compat --lock: <set> <sha256> <bytes> <group:artifact:version>"
    LOCK.write_text("\n".join([head, *jars.resolved(ROOTS)]) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="compat", description=__doc__)
    parser.add_argument("text", nargs="?", default="", metavar="TEXT")
    parser.add_argument("--lock", action="store_true")
    asked = parser.parse_args()
    if asked.lock:
        write_lock()
        return 0
    here = Path(sys.executable)
    tasks: dict[str, Callable[[], str | None]] = {
        f"ZooKeeper {TOO_OLD} is refused": refuses_what_is_too_old
    }
    for pair in SERVERS:
        tasks["ZooKeeper {} with Kafka {}".format(*pair)] = lambda pair=pair: tests_with(
            here, *pair
        )
    for version in PYTHONS:
        tasks[f"python{version}"] = lambda version=version: on_python(version)
    failed = 0
    for name, task in tasks.items():
        if asked.text in name:
            print(f"{name} ...", flush=True)
            problem = task()
            outcome = "skipped: not on this machine" if problem is None else problem or "ok"
            failed += bool(problem)
            print(f"    {outcome}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    pinned = jars.locked_jars
    jars.locked_jars = lambda name: jars.read_lock(LOCK.read_text(), name) or pinned(name)
    sys.exit(main())
