"""The stand-ins: which image each stands in for, and what it is made of.

This table is where the names are pinned for the tests; tests/containers/test_standins.py holds the
compose file, the Dockerfile and ``leaderq.testing.containers`` to it.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from standins.engine import RECIPE, STANDIN, Engine, Missing
from standins.roots import Roots, Say, root_recipe

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Image:
    """One image to stand in for; ``recipe`` names the folder with its Dockerfile, ``jars`` the set
    that goes into it.
    """

    name: str
    root: str
    recipe: str
    content: str
    jars: str | None = None


@dataclass(frozen=True)
class State:
    """What the engine has under the name of an image."""

    words: str
    must_be_built: bool

    def __str__(self) -> str:
        return self.words


def _reaper() -> str:
    # testcontainers pins its reaper by itself, so the installed one is asked.
    try:
        version("testcontainers")
    except PackageNotFoundError:
        return "testcontainers/ryuk:0.8.1"
    from testcontainers.core.config import testcontainers_config

    return str(testcontainers_config.ryuk_image)


_ALL = (
    Image(
        "zookeeper:3.9.5",
        "java",
        "zookeeper",
        "ZooKeeper from the locked jars, Java 21",
        jars="zookeeper",
    ),
    Image(
        "apache/kafka:4.3.1", "java", "kafka", "Kafka from the locked jars, Java 21", jars="kafka"
    ),
    Image("postgres:17.11", "postgres", "postgres", "Debian's PostgreSQL 17"),
    Image("python:3.13-slim", "python", "python", "Debian's Python 3.13"),
    Image(_reaper(), "python", "ryuk", "a reaper in Python"),
)
IMAGES = {image.name: image for image in _ALL}


def state(engine: Engine, image: Image) -> State:
    """What there is of ``image`` now."""
    labels = engine.labels(image.name)
    if labels is None:
        return State("not there", must_be_built=True)
    if STANDIN not in labels:
        return State("the real image is there; it is left alone", must_be_built=False)
    if labels.get(RECIPE) != _recipe(image):
        return State("a stand-in, out of date", must_be_built=True)
    return State(f"a stand-in ({image.content}), up to date", must_be_built=False)


def build(engine: Engine, image: Image, roots: Roots, say: Say) -> None:
    """Build ``image``, and its root if the engine lacks it."""
    root = roots.ensure(image.root)
    with tempfile.TemporaryDirectory(prefix="leaderq-standin-") as folder:
        context = Path(folder) / "context"
        shutil.copytree(HERE / image.recipe, context)
        if image.jars is not None:
            _copy_jars(image.jars, context / "jars", say)
        engine.build(image.name, context, {STANDIN: "true", RECIPE: _recipe(image)}, {"ROOT": root})


def _copy_jars(jar_set: str, target: Path, say: Say) -> None:
    from leaderq.errors import LeaderqError
    from leaderq.testing.jars import class_path

    target.mkdir()
    try:
        jars = class_path(jar_set, progress=say).split(":")
    except LeaderqError as exc:
        raise Missing(str(exc)) from exc
    for jar in jars:
        shutil.copy(jar, target)


def _recipe(image: Image) -> str:
    digest = hashlib.sha256(root_recipe(image.root).encode())
    for path in sorted((HERE / image.recipe).rglob("*")):
        if path.is_file():
            digest.update(
                f"{path.name} {path.stat().st_mode & 0o111}\n".encode() + path.read_bytes()
            )
    if image.jars is not None:
        try:
            from leaderq.testing.jars import locked_jars
        except ImportError as exc:
            raise Missing(
                "leaderq is not installed here; run it with the Python that has it (make sets"
                " one up)"
            ) from exc
        digest.update(repr(locked_jars(image.jars)).encode())
    return digest.hexdigest()[:16]
