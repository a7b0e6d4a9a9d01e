"""The documentation builds without a warning; what operators may copy from it is well formed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import click
import pytest
from snippets import ROOT

from leaderq.cli.verbs import leaderq
from leaderq.config.settings import TABLE

DEPLOY = ROOT / "docs" / "deploy"
NEEDED = "pip install -e '.[docs]'"


def test_the_docs_build_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason=NEEDED)
    # As text, which takes half the time of HTML, and warns of the same.
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "text"]
    command += [str(ROOT / "docs"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    settings = (tmp_path / "settings.txt").read_text()
    assert [row.name for row in TABLE if row.variable not in settings] == []
    verbs = (tmp_path / "command-line.txt").read_text()
    assert "leaderq run [OPTIONS]" in verbs
    assert "$ leaderq run billing:AdBilling --id a" in verbs
    listed = re.findall(r"^leaderq (\S+)\n=+$", verbs, re.MULTILINE)
    assert listed == leaderq.list_commands(click.Context(leaderq))


def test_the_kubernetes_manifest_keeps_to_its_schema():
    validate = pytest.importorskip("kubernetes_validate", reason=NEEDED)
    yaml = pytest.importorskip("yaml", reason=NEEDED)
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    assert documents
    for document in documents:
        validate.validate(document, validate.latest_version(), strict=True)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_systemd_unit_is_one(tmp_path):
    unit = tmp_path / "leaderq-billing.service"
    text = (DEPLOY / unit.name).read_text()
    unit.write_text(
        text.replace("/opt/billing/venv/bin/leaderq", "/bin/true").replace("User=billing\n", "")
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert "leaderq-billing" not in done.stderr, done.stderr
