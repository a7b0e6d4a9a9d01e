"""Curator's jars and a JDK: what the Java side of these tests and of ``benchmarks/queues.py`` is
made of.

The jars are named by Maven coordinates in ``curator.lock`` (all that
``org.apache.curator:curator-recipes:5.9.0`` and ``org.slf4j:slf4j-simple:1.7.36`` need, in the
format of ``jars.lock``) and fetched once, through jgo, into the cache of
:mod:`leaderq.testing.jars`. The sources beside this file are compiled once for each of their
states, into the same cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from leaderq.errors import MissingPiece
from leaderq.testing import jars
from leaderq.testing.jars import alone, cache_folder
from leaderq.testing.java import OLDEST_MAJOR, find_java

HERE = Path(__file__).parent
SOURCES = HERE / "java"


def curator_class_path() -> str:
    """The class path of Curator and all it needs; fetched if it is not in the cache.

    :raises MissingPiece: a jar is not in the cache and cannot be fetched.
    """
    locked = jars.read_lock((HERE / "curator.lock").read_text(), "curator")
    folder = jars._folder("curator", locked)
    with alone("jars-curator"):
        if not jars._is_complete(folder, locked):
            jars._complete(folder, "curator", locked, jars.to_stderr)
    return os.pathsep.join(str(folder / jar.file_name) for jar in locked)


def compiled(folders: Iterable[Path]) -> str:
    """The class path of what the Java sources in ``folders`` compile to, Curator included.

    :raises MissingPiece: there is no ``javac`` of Java 17 or newer.
    """
    sources = sorted(source for folder in folders for source in folder.glob("*.java"))
    class_path = curator_class_path()
    digest = hashlib.sha256(
        class_path.encode() + b"".join(source.read_bytes() for source in sources)
    ).hexdigest()
    classes = cache_folder() / "classes" / f"curator-{digest[:16]}"
    with alone("classes-curator"):
        if not classes.exists():
            _compile(sources, class_path, classes)
    return os.pathsep.join([str(classes), class_path])


def _compile(sources: list[Path], class_path: str, classes: Path) -> None:
    draft = classes.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    command = [str(_javac()), "-Xlint:all,-processing,-classfile", "-Werror", "-proc:none"]
    command += ["--release", str(OLDEST_MAJOR), "-cp", class_path, "-d", str(draft)]
    done = subprocess.run(
        [*command, *map(str, sources)], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise AssertionError(f"the Java sources do not compile:\n{done.stdout}{done.stderr}")
    draft.replace(classes)


def _javac() -> Path:
    """The compiler of a JDK: beside the Java in use, in ``JAVA_HOME``, or on the ``PATH``."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("javac")
    places = [find_java().program.resolve().parent / "javac"]
    places += [Path(home) / "bin" / "javac"] if home else []
    places += [Path(on_path)] if on_path else []
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise MissingPiece(
        "no javac was found (beside the Java in use, JAVA_HOME, PATH), and Curator's side of these"
        f" tests is compiled; install a JDK {OLDEST_MAJOR} or newer, such as"
        f" openjdk-{OLDEST_MAJOR}-jdk-headless"
    )
