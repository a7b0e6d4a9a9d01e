"""Formatting a broker's storage, with Kafka's own tool once for each set of jars, and by copying its result afterwards.

The tool takes a second of a JVM to write two files: the features of the new cluster, the same for all (kept in the cache), and three
ids. Only pinned jars are formatted this way, so what the tool wrote once is what it would write again.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import uuid
from pathlib import Path

from leaderq.errors import ServerFailed
from leaderq.testing.cache import cache_folder
from leaderq.testing.java import find_java
from leaderq.testing.server import START_TIMEOUT_S
from leaderq.testing.waiting import patience

_FEATURES = "bootstrap.checkpoint"


def new_id() -> str:
    """An id as Kafka writes them; none that begins with a dash, which its tools take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def format_storage(data: Path, configuration: Path, *, class_path: str, cluster_id: str, node_id: int) -> None:
    """Make ``data`` the storage of broker ``node_id``, as ``configuration`` says.

    :raises ServerFailed: Kafka's tool refused, or took too long.
    """
    template = cache_folder() / "formats" / f"kafka-{hashlib.sha256(class_path.encode()).hexdigest()[:12]}.checkpoint"
    if not template.exists():
        _format_with_tool(configuration, class_path, cluster_id)
        template.parent.mkdir(exist_ok=True)
        draft = template.with_suffix(f".{os.getpid()}-{node_id}.draft")
        shutil.copyfile(data / _FEATURES, draft)
        draft.replace(template)
        return
    data.mkdir()
    shutil.copyfile(template, data / _FEATURES)
    (data / "meta.properties").write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={new_id()}\n"
    )


def _format_with_tool(configuration: Path, class_path: str, cluster_id: str) -> None:
    command = [str(find_java().program), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", class_path]
    command += ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(configuration)]
    timeout_s = START_TIMEOUT_S * patience()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired as exc:
        raise ServerFailed(f"formatting Kafka's storage as {configuration} says took longer than {timeout_s:g} s") from exc
    if done.returncode != 0:
        words = (done.stdout + done.stderr).strip()
        raise ServerFailed(f"Kafka's storage could not be formatted as {configuration} says: {words}")
