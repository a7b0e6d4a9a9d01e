"""``docker-compose.yml`` as both kinds of Compose see it, and what an operator may copy from it
without thinking; the image's recipe: what hadolint has to say, and what must be so whatever it
says.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]
DOCKERFILE = CHECKOUT / "Dockerfile"
COMPOSE_FILE = CHECKOUT / "docker-compose.yml"
OLD_SCHEMA = Path(__file__).parent / "schemas" / "compose-1.29.2.json"


def tool(module: str) -> Any:
    """A module of the extra ``dev``: missing locally it skips, in CI it fails."""
    if os.environ.get("CI"):
        return __import__(module)
    return pytest.importorskip(module, reason=f"{module} is not installed; pip install -e '.[dev]'")


@pytest.fixture(scope="module")
def composed() -> Any:
    tool("ruamel.yaml")
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(COMPOSE_FILE)


@pytest.fixture(scope="module")
def services(composed) -> dict[str, Any]:
    return dict(composed["services"])


@pytest.mark.parametrize("kind", ["the Compose Specification", "docker-compose 1.29.2"])
def test_the_file_is_valid_in(kind, composed):
    tool("jsonschema")
    tool("check_jsonschema")
    from jsonschema import Draft201909Validator
    from jsonschema.validators import validator_for

    todays = resources.files("check_jsonschema").joinpath("builtin_schemas", "vendor")
    path = OLD_SCHEMA if "1.29" in kind else todays / "compose-spec.json"
    schema = json.loads(path.read_text())
    # The old one calls its draft by a name that it does not have.
    validator = validator_for(schema, default=Draft201909Validator)
    faults = [
        f"{'/'.join(map(str, fault.path))}: {fault.message}"
        for fault in validator(schema).iter_errors(composed)
    ]
    assert faults == []


def test_ports_are_published_on_the_loopback_interface_only_and_can_be_chosen(services):
    published = [port for service in services.values() for port in service.get("ports", [])]
    pattern = re.compile(r"127\.0\.0\.1:\$\{(\w+):-(\d+)\}:\d+")
    found = dict(pattern.fullmatch(port).groups() for port in published)
    assert len(set(found)) == len(set(found.values())) == len(published) > 4


def test_a_leader_has_more_time_to_stop_than_its_hand_over_may_take(services):
    candidate = services["candidate"]
    budget_s = float(candidate["environment"]["LEADERQ_HANDOVER_BUDGET_S"])
    assert float(candidate["stop_grace_period"].removesuffix("s")) > budget_s
    assert float(candidate["environment"]["LEADERQ_SESSION_TIMEOUT_S"]) == 6.0
    assert services["zookeeper1"]["environment"]["ZOO_TICK_TIME"] == 500
    assert candidate["scale"] == 3


def test_what_is_ours_runs_with_nothing_it_does_not_need(services):
    ours = [one for one in services.values() if one["image"].startswith("leaderq-demo:")]
    assert len(ours) == 4
    wanted = {"read_only": True, "cap_drop": ["ALL"], "user": "10001:10001"}
    assert all({name: one.get(name) for name in wanted} == wanted for one in ours)


def test_the_guardian_is_process_1_of_a_candidate(services):
    entry = services["candidate"]["entrypoint"]
    assert entry[:2] == ["sh", "-c"]
    assert entry[2].startswith("exec leaderq run ")
    assert "init" not in services["candidate"]


def test_the_image_has_the_version_of_the_package(services):
    version = re.search(r"^version = (\S+)$", (CHECKOUT / "setup.cfg").read_text(), re.MULTILINE)
    assert services["candidate"]["image"] == f"leaderq-demo:{version[1]}"


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def test_hadolint_has_nothing_to_say():
    hadolint = Path(sys.executable).parent / "hadolint"
    found = str(hadolint) if hadolint.exists() else shutil.which("hadolint")
    if found is None and not os.environ.get("CI"):
        pytest.skip("hadolint is not installed here; pip install -e '.[dev]'")
    assert found is not None
    done = subprocess.run([found, str(DOCKERFILE)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_it_does_not_run_as_root_and_no_shell_stands_between_signals_and_the_program(instructions):
    (user,) = (value for name, value in instructions if name == "USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert json.loads(dict(instructions)["ENTRYPOINT"]) == ["leaderq"]


def test_what_is_copied_is_let_in_and_secrets_are_not(instructions):
    lines = (CHECKOUT / ".dockerignore").read_text().splitlines()
    assert next(line for line in lines if line and not line.startswith("#")) == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = [value for name, value in instructions if name == "COPY" and "--from" not in value]
    sources = {source for value in copied for source in value.split()[:-1]}
    assert sources <= let_in | {"examples"}
    assert not [line for line in let_in if line.startswith(".")]
    for source in sources:
        assert (CHECKOUT / source).exists()
