"""The stand-ins, as far as no engine is needed; tests/integration/servers/test_containers.py and
the smoke script run on them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from standins import command, images, roots
from standins.engine import RECIPE, STANDIN, Missing
from standins.images import HERE, IMAGES, state

from leaderq.testing.containers import KafkaContainer, ZooKeeperContainer

CHECKOUT = HERE.parent.parent.parent


class Labelled:
    """An engine with one image, of these labels."""

    def __init__(self, labels: dict[str, str] | None) -> None:
        self._labels = labels

    def labels(self, name: str) -> dict[str, str] | None:
        return self._labels


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_they_stand_in_for_the_very_images_that_are_used() -> None:
    # Those of a profile are for looking on only; nothing needs them.
    services, *_ = (CHECKOUT / "docker-compose.yml").read_text().partition("\n  kafka-ui:")
    used = set(re.findall(r"^ +image: (\S+)$", services, re.MULTILINE)) - {"leaderq-demo:0.1.0"}
    used |= set(re.findall(r"^FROM (\S+:\S+)", (CHECKOUT / "Dockerfile").read_text(), re.MULTILINE))
    assert used | {ZooKeeperContainer.image, KafkaContainer.image} == {
        name for name in IMAGES if "ryuk" not in name
    }


@pytest.mark.parametrize("image", IMAGES.values(), ids=list(IMAGES))
def test_each_is_labelled_as_a_stand_in(image: Any) -> None:
    assert f"LABEL {STANDIN}=true" in (HERE / image.recipe / "Dockerfile").read_text()


def test_a_real_image_is_left_alone() -> None:
    found = state(Labelled({"maintainer": "someone"}), IMAGES["zookeeper:3.9.5"])  # type: ignore[arg-type]
    assert not found.must_be_built
    assert "real" in str(found)


def test_a_stand_in_is_built_anew_only_when_its_recipe_has_changed() -> None:
    image = IMAGES["zookeeper:3.9.5"]
    assert state(Labelled(None), image).must_be_built  # type: ignore[arg-type]
    assert state(Labelled({STANDIN: "true", RECIPE: "old"}), image).must_be_built  # type: ignore[arg-type]
    assert not state(
        Labelled({STANDIN: "true", RECIPE: images._recipe(image)}), image
    ).must_be_built  # type: ignore[arg-type]


def test_what_others_built_on_a_stand_in_is_not_removed_with_it() -> None:
    removed: list[str] = []

    class Full(Labelled):
        def stand_ins(self) -> list[str]:
            return ["leaderq-demo:0.1.0", "python:3.13-slim", "leaderq-standin/python:trixie"]

        def remove(self, name: str) -> None:
            removed.append(name)

    command.remove(Full({}))  # type: ignore[arg-type]
    assert removed == ["python:3.13-slim", "leaderq-standin/python:trixie"]


def test_without_an_engine_one_sentence_says_so() -> None:
    done = run("--list", DOCKER_HOST="unix:///nowhere/docker.sock", PATH=os.environ["PATH"])
    assert done.returncode == 2
    assert re.fullmatch(
        r"standins: (no Docker engine answers|there is no docker command).*\n", done.stderr
    )


def test_without_docker_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    done = run(PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "standins: there is no docker command; install Docker (on Debian: apt-get install"
        " docker.io)\n"
    )


def test_an_unknown_image_is_refused_with_the_known_ones() -> None:
    done = run("redis:8")
    assert done.returncode == 2
    assert "no stand-in for redis:8; there are zookeeper:3.9.5, " in done.stderr


def test_only_root_builds_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Missing, match="needs root"):
        roots._check_the_machine()


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="apt-get install debootstrap"):
        roots._check_the_machine()


def test_the_mirror_is_the_machines_own_or_the_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    configured = (
        "http://a.invalid/debian-security bookworm-security main\nhttp://b.invalid/debian bookworm"
        " main\n"
    )
    monkeypatch.delenv(roots.MIRROR_VARIABLE, raising=False)
    monkeypatch.setattr(roots, "_run", lambda *command, **_: configured)
    assert roots.mirror() == "http://b.invalid/debian"
    monkeypatch.setattr(roots, "_run", lambda *command, **_: "http://c.invalid/ubuntu noble main\n")
    with pytest.raises(Missing, match=roots.MIRROR_VARIABLE):
        roots.mirror()
    monkeypatch.setenv(roots.MIRROR_VARIABLE, "http://d.invalid/debian")
    assert roots.mirror() == "http://d.invalid/debian"


def test_zookeepers_entry_point_writes_what_the_variables_say_and_only_once(tmp_path: Path) -> None:
    folders = {f"ZOO_{name}_DIR": str(tmp_path) for name in ("CONF", "DATA", "DATA_LOG", "LOG")}
    variables = {
        "ZOO_MY_ID": "2",
        "ZOO_TICK_TIME": "500",
        "ZOO_SERVERS": "server.1=a:2888:3888;2181 server.2=b:2888:3888;2181",
        "ZOO_4LW_COMMANDS_WHITELIST": "*",
        "ZOO_CFG_EXTRA": "minSessionTimeout=1000 maxSessionTimeout=60000",
    }
    command = [
        "bash",
        str(HERE / "zookeeper" / "docker-entrypoint.sh"),
        "cat",
        str(tmp_path / "zoo.cfg"),
        str(tmp_path / "myid"),
    ]
    first = subprocess.run(
        command,
        env={**os.environ, **folders, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = first.stdout.splitlines()
    wanted = {
        "tickTime=500",
        "server.2=b:2888:3888;2181",
        "4lw.commands.whitelist=*",
        "maxSessionTimeout=60000",
        f"dataDir={tmp_path}",
    }
    assert wanted <= set(lines)
    assert lines[-1] == "2"
    second = subprocess.run(
        command, env={**os.environ, **folders}, capture_output=True, text=True, check=True
    )
    assert second.stdout == first.stdout
