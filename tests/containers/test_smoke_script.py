"""The smoke script where it cannot be tried: one clear sentence, and exit code 2. And the end of
it, which needs no engine.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from smoking.compose import CHECKOUT, PORTS, explained, images
from smoking.plugs import Gap
from smoking.table import Result, table, verdict

from leaderq.cli.demo.ad_billing.audit import Audit
from leaderq.testing.ports import lease_port

Smoke = Callable[..., "subprocess.CompletedProcess[str]"]
ENGINE_ANSWERS = 'if [ "$1" = version ]; then echo 20.10.24; exit; fi'


@pytest.fixture
def smoke(tmp_path: Path) -> Smoke:
    """Run the script with these programs, and no others, to be found; ``settings`` are
    variables.
    """

    def run(programs: Mapping[str, str], **settings: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, text in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (folder / name).chmod(0o755)
        return subprocess.run(
            [sys.executable, str(CHECKOUT / "tests" / "containers" / "smoke.py")],
            env={"PATH": str(folder), "HOME": str(tmp_path), **settings},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one sentence it must have said."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("smoke: error: ")
    return line.removeprefix("smoke: error: ")


def test_without_docker_it_says_what_to_install(smoke: Smoke) -> None:
    assert refused(smoke({})).startswith("no docker command is found; install Docker")


def test_an_engine_that_does_not_answer_is_named(smoke: Smoke) -> None:
    docker = shutil.which("docker")
    # The real command, where there is one, with an address at which nobody listens.
    program = (
        f'exec {docker} "$@"'
        if docker
        else 'echo "Cannot connect to the Docker daemon at $DOCKER_HOST" >&2; exit 1'
    )
    said = refused(smoke({"docker": program}, DOCKER_HOST="tcp://127.0.0.1:1"))
    assert said.startswith("the Docker engine cannot be reached: ")
    assert "127.0.0.1:1" in said
    assert "is dockerd running, and may this user use it" in said


def test_an_engine_without_compose_is_told_apart(smoke: Smoke) -> None:
    said = refused(smoke({"docker": f"{ENGINE_ANSWERS}; exit 125"}))
    assert said.startswith("Docker is there, but no Compose; install docker-compose 1.29 or newer")


def test_an_old_compose_is_named_with_its_version(smoke: Smoke) -> None:
    said = refused(
        smoke({"docker": f"{ENGINE_ANSWERS}; exit 125", "docker-compose": "echo 1.25.0"})
    )
    assert (
        said
        == "Compose is too old: docker-compose 1.25.0; the demo cluster needs docker-compose 1.29"
        " or docker compose v2"
    )


@pytest.fixture
def taken() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield str(server.getsockname()[1])


@pytest.fixture
def fit() -> Iterator[Callable[..., dict[str, str]]]:
    """Settings with free ports, which stay so."""
    leased = [lease_port() for _ in PORTS]

    def settings(**chosen: str) -> dict[str, str]:
        return {
            **{name: str(port.number) for name, port in zip(PORTS, leased, strict=True)},
            **chosen,
        }

    yield settings
    for port in leased:
        port.release()


def test_a_port_in_use_is_named_with_its_variable(
    smoke: Smoke, taken: str, fit: Callable[..., dict[str, str]]
) -> None:
    said = refused(
        smoke({"docker": f"{ENGINE_ANSWERS}; echo 2.40.3"}, **fit(LEADERQ_DEMO_KAFKA_PORT=taken))
    )
    assert (
        said
        == f"port {taken} of 127.0.0.1 cannot be had (Address already in use); stop what uses it,"
        " or choose another: LEADERQ_DEMO_KAFKA_PORT=..."
    )


def test_a_port_that_is_none_is_refused(smoke: Smoke, fit: Callable[..., dict[str, str]]) -> None:
    said = refused(
        smoke({"docker": f"{ENGINE_ANSWERS}; echo 2.40.3"}, **fit(LEADERQ_DEMO_LEDGER_PORT="0x50"))
    )
    assert (
        said
        == "LEADERQ_DEMO_LEDGER_PORT is '0x50'; it must be a port of this machine, from 1 to 65535"
    )


def test_make_smoke_runs_the_script_with_stand_ins_only_if_asked(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed here")

    def told(*more: str) -> str:
        done = subprocess.run(
            ["make", "-n", "smoke", *more],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            env={**os.environ},
        )
        return done.stdout

    assert "tests/containers/smoke.py" in told()
    assert "--standins" not in told()
    assert "--standins" in told("STANDINS=1")


def test_the_line_that_says_why_is_found_in_what_compose_printed() -> None:
    words = (
        "Container a  Starting\nError response from daemon: driver failed: port is already"
        " allocated\n\n exit 1\n"
    )
    assert (
        explained(words) == "Error response from daemon: driver failed: port is already allocated"
    )
    assert explained("") == "it did not say why"


def test_only_images_that_are_used_are_looked_for() -> None:
    config = """name: x
services:
  a:
    image: one:1
    environment:
      image: no
  b:
    image: "two:2"
    profiles:
      - ui
  c:
    image: one:1
volumes:
  d:
    image: three:3
"""
    assert images(config) == ["one:1"]


KILLED = Gap("docker kill", "aaa", "bbb", 2, 6.25, 6.5, 7.0)
RESTARTED = Gap("restart of kafka", "bbb", "bbb", 2, None, 9.0, None)
ALL_WELL = Audit(fed=10, billed=10, twice=0, skipped=0, unknown=0, disordered=0, usurped=0)


def test_the_table_shows_each_plug_and_its_gap() -> None:
    assert table([KILLED, RESTARTED]) == [
        "PLUG              LED  LEADS       TERM  LED AFTER  PROMISED  BILLING STOOD STILL",
        "docker kill       aaa  bbb            2     6.25 s    7.00 s               6.50 s",
        "restart of kafka  bbb  (the same)     2          -         -               9.00 s",
    ]


def test_the_verdict_is_good_only_if_every_promise_held_and_the_ledger_is_right() -> None:
    assert verdict(Result([KILLED], ALL_WELL, 30.0))[-1].startswith("VERDICT: all held")
    late = Gap("docker stop", "a", "b", 3, 1000.0, 1000.0, 1.0)
    said = verdict(Result([late], Audit(10, 9, 0, 1, 0, 0, 0), 30.0))[-1]
    assert said.startswith(
        "VERDICT: not everything held: docker stop: the next led after 1000.00 s, and 1 s are"
        " promised"
    )
    assert "1 records were skipped" in said
    assert "90 s are promised" in verdict(Result([KILLED], ALL_WELL, 9000.0))[-1]
