"""Docker and Compose as commands: found, checked, and asked; what is wrong with them said in one
sentence.

Nothing here knows the demo cluster except :data:`PORTS`. Errors: :class:`Unfit`, whose text names
the remedy.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
OLDEST = (1, 29)
PORTS = {
    "LEADERQ_DEMO_ZOOKEEPER1_PORT": 2181,
    "LEADERQ_DEMO_ZOOKEEPER2_PORT": 2182,
    "LEADERQ_DEMO_ZOOKEEPER3_PORT": 2183,
    "LEADERQ_DEMO_KAFKA_PORT": 9092,
    "LEADERQ_DEMO_LEDGER_PORT": 5432,
}
_PROJECT = "label=com.docker.compose.project"
_SERVICE = "label=com.docker.compose.service"
_WITHIN_S = 120.0


class Unfit(Exception):
    """The smoke script cannot go on here; the text is one sentence that says why, and what to
    do.
    """


@dataclass(frozen=True)
class Compose:
    """Compose for one project of the checkout; ``command`` is how it is called here."""

    command: tuple[str, ...]
    project: str

    @classmethod
    def found(cls, project: str) -> Compose:
        """The engine answers, and there is a Compose that is new enough; raises :class:`Unfit`."""
        if shutil.which("docker") is None:
            raise Unfit(
                "no docker command is found; install Docker (on Debian and Ubuntu: apt-get install"
                " docker.io docker-compose)"
            )
        told = _run(["docker", "version", "--format", "{{.Server.Version}}"], timeout_s=30)
        if told.returncode != 0 or not told.stdout.strip():
            raise Unfit(
                f"the Docker engine cannot be reached: {_first_line(told.stderr or told.stdout)}; "
                "is dockerd running, and may this user use it (group docker, or root)?"
            )
        return cls(_compose_command(), project)

    def run(self, *arguments: str, timeout_s: float = _WITHIN_S) -> str:
        """``docker compose ...``; gives what it printed. Raises :class:`Unfit` with its last
        words.
        """
        return _checked([*self.command, "-p", self.project, *arguments], timeout_s)

    def docker(self, *arguments: str, timeout_s: float = _WITHIN_S) -> str:
        """``docker ...``, as :meth:`run`."""
        return _checked(["docker", *arguments], timeout_s)

    def containers(self, service: str | None = None, *, running: bool = False) -> list[str]:
        """The ids, of 12 digits, of the project's containers."""
        filters = [
            "--filter",
            f"{_PROJECT}={self.project}",
            *(["--filter", f"{_SERVICE}={service}"] if service else []),
        ]
        return self.docker(
            "ps", *([] if running else ["--all"]), *filters, "--format", "{{.ID}}"
        ).split()

    def left_behind(self) -> list[str]:
        """What is still there of the project: containers, volumes and networks."""
        kinds: dict[str, Sequence[str]] = {
            "container": ("ps", "--all"),
            "volume": ("volume", "ls"),
            "network": ("network", "ls"),
        }
        found = []
        for kind, listing in kinds.items():
            names = self.docker(
                *listing, "--filter", f"{_PROJECT}={self.project}", "--quiet"
            ).split()
            found += [f"{kind} {name}" for name in names]
        return found


def ports(environment: Mapping[str, str] = os.environ) -> dict[str, int]:
    """The ports that the cluster publishes, by variable; raises :class:`Unfit` for one that is no
    number, or in use.
    """
    chosen = {}
    for name, default in PORTS.items():
        text = environment.get(name) or str(default)
        if not text.isdigit() or not 0 < int(text) < 65_536:
            raise Unfit(f"{name} is {text!r}; it must be a port of this machine, from 1 to 65535")
        chosen[name] = int(text)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", int(text)))
            except OSError as exc:
                raise Unfit(
                    f"port {text} of 127.0.0.1 cannot be had ({exc.strerror}); stop what uses it,"
                    f" or choose another: {name}=..."
                ) from exc
    return chosen


def _compose_command() -> tuple[str, ...]:
    seen = []
    for command in (("docker", "compose"), ("docker-compose",)):
        if shutil.which(command[0]) is None:
            continue
        told = _run([*command, "version", "--short"], timeout_s=30)
        version = re.match(r"v?(\d+)\.(\d+)", told.stdout.strip())
        if told.returncode != 0 or version is None:
            continue
        if (int(version[1]), int(version[2])) >= OLDEST:
            return command
        seen.append(f"{' '.join(command)} {told.stdout.strip()}")
    if seen:
        raise Unfit(
            f"Compose is too old: {', '.join(seen)}; the demo cluster needs docker-compose 1.29 or"
            " docker compose v2"
        )
    raise Unfit(
        "Docker is there, but no Compose; install docker-compose 1.29 or newer, or the plugin"
        " docker-compose-v2"
    )


def _checked(command: Sequence[str], timeout_s: float) -> str:
    done = _run(command, timeout_s=timeout_s)
    if done.returncode != 0:
        raise Unfit(f"{' '.join(command)} failed: {explained(done.stderr or done.stdout)}")
    return done.stdout


def images(config: str) -> list[str]:
    """The images of the services in what ``compose config`` printed that are in no profile (pure):
    1.29 prints all of them.
    """
    found: dict[str, str] = {}
    optional: set[str] = set()
    service = ""
    for line in config.partition("services:\n")[2].splitlines():
        if not line.startswith(" "):
            break
        key, _, value = line.strip().partition(":")
        if re.match(r" {2}\w", line):
            service = key
        elif re.match(r" {4}\w", line) and key == "image":
            found[service] = value.strip().strip("'\"")
        elif re.match(r" {4}\w", line) and key == "profiles":
            optional.add(service)
    return sorted({image for service, image in found.items() if service not in optional})


def explained(words: str) -> str:
    """The line of a failed command's output that says why (pure)."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    telling = [
        line
        for line in lines
        if re.search(
            r"error|failed|denied|refused|cannot|invalid|no such|not found", line, re.IGNORECASE
        )
    ]
    return (telling or lines or ["it did not say why"])[-1]


def _run(command: Sequence[str], *, timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=CHECKOUT, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise Unfit(f"{' '.join(command)} did not end within {timeout_s:g} s") from exc


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["it did not say why"])[0].rstrip(".?")
