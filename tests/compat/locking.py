"""``make lock``: resolve what the servers need, the pinned ones and those of ``make compat``, and
write ``jars.lock`` and ``servers.lock``. Review the difference. It fetches all of it.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from compat import versions
from leaderq.testing import jars

ROOTS = {
    "zookeeper": (
        "org.apache.zookeeper:zookeeper:3.9.5",
        "io.dropwizard.metrics:metrics-core:4.2.40",
        "org.xerial.snappy:snappy-java:1.1.10.8",
        "org.slf4j:slf4j-simple:2.0.13",
    ),
    "kafka": (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        # without a binding Kafka logs nothing, and a failed start could not be explained
        "org.slf4j:slf4j-simple:1.7.36",
    ),
}
# What the roots name but the servers and their tools never load; half of all bytes. Found by
# starting both without them.
UNUSED = (
    # ZooKeeper 3.9 lists its own test libraries as compile dependencies.
    "org.mockito:", "net.bytebuddy:", "org.objenesis:", "org.apache.yetus:",
    # Native TLS and epoll: there is one jar for each system, and Java's own do as well.
    "io.netty:netty-tcnative-boringssl-static:", "io.netty:netty-transport-native-epoll:",
    # Kafka Connect with its web server: pulled in by kafka-tools for a command that lists Connect
    # plug-ins.
    "org.apache.kafka:connect-", "org.glassfish.", "org.eclipse.jetty", "jakarta.", "javax.",
    "com.sun.activation:", "com.fasterxml.jackson.jakarta.rs:", "com.fasterxml.jackson.module:",
    "io.swagger.core.v3:", "io.github.classgraph:", "org.apache.maven:", "org.codehaus.plexus:",
    "org.javassist:", "commons-beanutils:", "commons-digester:", "commons-collections:",
    "org.scala-lang:scala-reflect:",
)  # fmt: skip


def resolved(sets: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The lines of a lock file, of what each set's roots need now; fetches all of it."""
    from jgo.maven import MavenContext, PythonResolver

    with tempfile.TemporaryDirectory() as folder:
        context = MavenContext(resolver=PythonResolver(), repo_cache=Path(folder), timeout=60)
        for set_name, roots in sets.items():
            inputs, transitive = context.resolver.resolve(
                [context.create_dependency(root) for root in roots]
            )
            for dependency in [*inputs, *transitive]:
                artifact = dependency.artifact
                coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
                if coordinate.startswith(UNUSED):
                    continue
                content = artifact.resolve().read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                yield f"{set_name} {digest} {len(content)} {coordinate}"


def write(path: Path, roots: Mapping[str, Sequence[str]]) -> None:
    """Write the lock file at ``path``."""
    head = "# Written by make lock: <set> <sha256> <bytes> <group:artifact:version>"
    path.write_text("\n".join([head, *resolved(roots)]) + "\n")


if __name__ == "__main__":
    write(Path(jars.__file__).with_name("jars.lock"), ROOTS)
    write(versions.LOCK, versions.ROOTS)
