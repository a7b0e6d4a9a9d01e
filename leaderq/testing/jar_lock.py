"""What is fetched, exactly: the pinned roots, and ``jars.lock``, which names every jar they need with its checksum.

``jars.lock`` is the authority at run time: nothing is resolved on a user's machine, so no answer of a repository can change what
runs. Each line holds ``<set> <sha256> <bytes> <group:artifact:version>``. ``python -m leaderq.testing.relock`` writes it anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Final

ROOTS: Final[dict[str, tuple[str, ...]]] = {
    "zookeeper": (
        "org.apache.zookeeper:zookeeper:3.9.5",
        "io.dropwizard.metrics:metrics-core:4.2.40",
        "org.xerial.snappy:snappy-java:1.1.10.8",
        "org.slf4j:slf4j-simple:2.0.13",
    ),
    "kafka": (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.slf4j:slf4j-simple:1.7.36",  # without a binding Kafka logs nothing, and a failed start could not be explained
    ),
}


@dataclass(frozen=True)
class LockedJar:
    """One jar of a set, with the checksum and size that it must have."""

    coordinate: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """``artifact-version.jar``."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def locked_jars(set_name: str) -> tuple[LockedJar, ...]:
    """The jars of ``set_name`` ("zookeeper" or "kafka"), in the order of the class path."""
    jars = []
    for line in files("leaderq.testing").joinpath("jars.lock").read_text().splitlines():
        if line and not line.startswith("#"):
            owner, sha256, size, coordinate = line.split()
            if owner == set_name:
                jars.append(LockedJar(coordinate, sha256, int(size)))
    return tuple(jars)
