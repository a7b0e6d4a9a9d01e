"""``python -m compat [TEXT]``: only what is called so, such as ``3.6`` or ``python3.12``."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from compat.versions import NEWEST, SERVERS
from leaderq.testing import jars

ROOT = Path(__file__).parents[2]
TESTS = [f"@{ROOT / 'tests' / path}" for path in ("quick.txt", "compat/tests.txt")]
# Older ones go on sending what a closed watch was about, and have one mode of watch a path.
SINCE_39 = "the_server_forgets_a_watch or stands_again_after_a_reconnection_and_says"
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
EXTRAS = "confluent,metrics,sasl,servers"
TOOLS = ["hypothesis", "import-linter>=2", "psycopg[binary]", "pytest>=8.2", "pytest-timeout"]
TOOLS += ["pytest-xdist", "setuptools>=68"]  # the last is not in newer Pythons


def tests_with(python: Path, zookeeper: str, kafka: str, *also: str) -> str:
    """Nothing if the tests pass with these servers, else the end of what was said."""
    environment = {
        **os.environ,
        "COMPAT_ZOOKEEPER": zookeeper,
        "COMPAT_KAFKA": kafka,
        "LEADERQ_TEST_PATIENCE": os.environ.get("LEADERQ_TEST_PATIENCE", "3"),
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
    }
    command = [str(python), "-m", "pytest", "-q", "-p", "compat.versions", "-p", "no:cacheprovider"]
    command += ["-n", "2", "--dist", "loadfile", *TESTS, *also]
    if zookeeper.startswith(("3.6", "3.8")):
        command += ["-k", f"not ({SINCE_39})"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    print(f"    {lines[-1].strip('= ')}", flush=True)
    skipped = [line for line in lines if line.startswith("SKIPPED") and "tests/unit" not in line]
    return "" if done.returncode == 0 and not skipped else "\n".join(lines[-80:])


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
    return tests_with(python, *NEWEST, "tests/unit")


def main() -> int:
    parser = argparse.ArgumentParser(prog="compat", description=__doc__)
    parser.add_argument("text", nargs="?", default="", metavar="TEXT")
    asked = parser.parse_args()
    here = Path(sys.executable)
    tasks: dict[str, Callable[[], str | None]] = {}
    for pair in SERVERS:
        tasks["ZooKeeper {} with Kafka {}".format(*pair)] = partial(tests_with, here, *pair)
    for version in PYTHONS:
        tasks[f"python{version}"] = partial(on_python, version)
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
    sys.exit(main())
