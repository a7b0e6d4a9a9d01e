"""The image's recipe: what hadolint has to say, and what must be so whatever it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
DOCKERFILE = CHECKOUT / "Dockerfile"


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


def test_it_does_not_run_as_root(instructions):
    users = [value for name, value in instructions if name == "USER"]
    assert len(users) == 1
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", users[0])


def test_no_shell_stands_between_signals_and_the_program(instructions):
    given = dict(instructions)
    assert json.loads(given["ENTRYPOINT"]) == ["leaderq"]
    assert json.loads(given["CMD"]) == ["--help"]


def test_what_is_copied_is_let_in_and_secrets_are_not(instructions):
    lines = [
        line
        for line in (CHECKOUT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = [
        value.split()[:-1]
        for name, value in instructions
        if name == "COPY" and "--from" not in value
    ]
    sources = {source for each in copied for source in each}
    assert sources <= let_in | {"examples"}
    assert not [line for line in let_in if line.startswith(".")]
    for source in sources:
        assert (CHECKOUT / source).exists()
