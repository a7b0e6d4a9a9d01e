"""For maintainers: resolve the pinned roots anew and write ``jars.lock`` (``python -m leaderq.testing.relock``).

Run after a change of ``jar_lock.ROOTS``; review the difference before committing it. Needs ``leaderq[servers]`` and the network.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import Final

from leaderq.testing.jar_lock import ROOTS

# What the roots name but the servers and their tools never load; half of all bytes. Found by starting both without them.
UNUSED: Final[tuple[str, ...]] = (
    # ZooKeeper 3.9 lists its own test libraries as compile dependencies.
    "org.mockito:", "net.bytebuddy:", "org.objenesis:", "org.apache.yetus:",
    # Native TLS and epoll: there is one jar for each system, and Java's own do as well.
    "io.netty:netty-tcnative-boringssl-static:", "io.netty:netty-transport-native-epoll:",
    # Kafka Connect with its web server: pulled in by kafka-tools for a command that lists Connect plug-ins.
    "org.apache.kafka:connect-", "org.glassfish.", "org.eclipse.jetty", "jakarta.", "javax.", "com.sun.activation:",
    "com.fasterxml.jackson.jakarta.rs:", "com.fasterxml.jackson.module:", "io.swagger.core.v3:", "io.github.classgraph:",
    "org.apache.maven:", "org.codehaus.plexus:", "org.javassist:", "commons-beanutils:", "commons-digester:",
    "commons-collections:", "org.scala-lang:scala-reflect:",
)  # fmt: skip


def main() -> int:
    """Resolve, fetch, measure, write; returns the exit code."""
    from jgo.maven import MavenContext, PythonResolver

    lines = ["# Written by leaderq.testing.relock: <set> <sha256> <bytes> <group:artifact:version>"]
    with tempfile.TemporaryDirectory() as folder:
        context = MavenContext(resolver=PythonResolver(), repo_cache=Path(folder), timeout=60)
        for set_name, roots in ROOTS.items():
            inputs, transitive = context.resolver.resolve([context.create_dependency(root) for root in roots])
            for dependency in [*inputs, *transitive]:
                artifact = dependency.artifact
                coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
                if coordinate.startswith(UNUSED):
                    continue
                content = artifact.resolve().read_bytes()
                lines.append(f"{set_name} {hashlib.sha256(content).hexdigest()} {len(content)} {coordinate}")
                sys.stderr.write(f"{lines[-1]}\n")
    Path(__file__).with_name("jars.lock").write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
