"""The Docker engine, as far as building stand-ins needs it; spoken to through its command line,
which building needs anyway.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

STANDIN = "leaderq.standin"
RECIPE = "leaderq.standin.recipe"


class Missing(Exception):
    """Something that must be there is not; the text says what, and how to get it."""


class Engine:
    """An engine that answers."""

    @classmethod
    def reached(cls) -> Engine:
        """The engine that the command line reaches."""
        if shutil.which("docker") is None:
            raise Missing(
                "there is no docker command; install Docker (on Debian: apt-get install docker.io)"
            )
        done = _docker("version", "--format", "{{.Server.Version}}")
        if done.returncode != 0:
            raise Missing(
                f"no Docker engine answers ({_last_line(done.stderr)}); start dockerd, or name one"
                " in DOCKER_HOST"
            )
        return cls()

    def labels(self, name: str) -> Mapping[str, str] | None:
        """The labels of an image; ``None`` if there is no such image."""
        done = _docker("image", "inspect", "--format", "{{json .Config.Labels}}", name)
        return None if done.returncode != 0 else json.loads(done.stdout) or {}

    def stand_ins(self) -> list[str]:
        """The names of all images with their label, what others were built from last."""
        done = _docker(
            "image", "ls", "--filter", f"label={STANDIN}", "--format", "{{.Repository}}:{{.Tag}}"
        )
        names = [name for name in done.stdout.split() if "<none>" not in name]
        return sorted(names, key=lambda name: name.startswith("leaderq-standin/"))

    def build(
        self, name: str, context: Path, labels: Mapping[str, str], arguments: Mapping[str, str]
    ) -> None:
        """Build the Dockerfile of ``context``; nothing of it needs the network."""
        options = [part for key, value in labels.items() for part in ("--label", f"{key}={value}")]
        options += [
            part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")
        ]
        with self._replacing(name):
            done = _docker("build", "--network", "none", "--tag", name, *options, str(context))
            if done.returncode != 0:
                raise Missing(f"building {name} failed:\n{done.stdout}{done.stderr}")

    def import_root(
        self, root: Path, name: str, labels: Mapping[str, str], leave_out: Sequence[str]
    ) -> None:
        """Make an image of the files below ``root``."""
        changes = [
            part for key, value in labels.items() for part in ("--change", f"LABEL {key}={value}")
        ]
        tar = [
            "tar",
            "--directory",
            str(root),
            "--numeric-owner",
            *(f"--exclude={path}" for path in leave_out),
            "--create",
            ".",
        ]
        with self._replacing(name), subprocess.Popen(tar, stdout=subprocess.PIPE) as packing:
            done = subprocess.run(
                ["docker", "import", *changes, "-", name],
                stdin=packing.stdout,
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode != 0 or packing.returncode != 0:
            raise Missing(f"importing {name} failed: {done.stderr.strip() or 'tar failed'}")

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[None]:
        """What has lost its name to the new image is removed, unless something still uses it."""
        before = _docker("image", "inspect", "--format", "{{.Id}}", name).stdout.strip()
        yield
        after = _docker("image", "inspect", "--format", "{{.Id}}", name).stdout.strip()
        if before and before != after:
            _docker("image", "rm", before)

    def remove(self, name: str) -> None:
        """Remove an image that no container uses."""
        done = _docker("image", "rm", name)
        if done.returncode != 0:
            raise Missing(f"{name} was not removed: {_last_line(done.stderr)}")


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"
