"""Build the stand-ins: ``python tests/containers/standins [IMAGE ...]``, as root; without names all
of them.

Contract: at exit code 0 the engine has every image asked for, under the very name that the compose
file, the Dockerfile and testcontainers use. An image that is no stand-in is never touched: it is
the real one, and better. A stand-in that is up to date stays; one whose recipe has changed is built
anew. What was needed only for building is removed, however it ends. What is missing (root, the
engine, debootstrap, a mirror, leaderq) is said in one sentence on stderr, with exit code 2.

``--list`` says what there is and builds nothing; ``--remove`` removes every stand-in and what they
were built from.
"""

from __future__ import annotations

import argparse
import sys
import time

from standins.engine import Engine, Missing
from standins.images import IMAGES, Image, build, state
from standins.roots import ROOT_IMAGES, Roots


def main(arguments: list[str]) -> int:
    """The exit code: 0 all there, 2 something is missing to build with."""
    parser = argparse.ArgumentParser(
        prog="standins", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="IMAGE", help="such as " + ", ".join(IMAGES))
    parser.add_argument("--list", action="store_true", help="say what there is, build nothing")
    parser.add_argument(
        "--remove", action="store_true", help="remove all stand-ins and what they were built from"
    )
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in IMAGES]
    if unknown:
        parser.error(
            f"there is no stand-in for {', '.join(unknown)}; there are {', '.join(IMAGES)}"
        )
    chosen = [IMAGES[name] for name in asked.names] or list(IMAGES.values())
    try:
        engine = Engine.reached()
        if asked.remove:
            remove(engine)
        elif asked.list:
            for image in chosen:
                print(f"{image.name}: {state(engine, image)}")
        else:
            build_all(engine, chosen)
    except Missing as exc:
        sys.stderr.write(f"standins: {exc}\n")
        return 2
    return 0


def build_all(engine: Engine, chosen: list[Image]) -> None:
    """Build those that are not there."""
    with Roots(engine, say) as roots:
        for image in chosen:
            found = state(engine, image)
            if found.must_be_built:
                began = time.monotonic()
                build(engine, image, roots, say)
                say(
                    f"{image.name}: built, a stand-in ({image.content}),"
                    f" {time.monotonic() - began:.0f} s"
                )
            else:
                say(f"{image.name}: {found}")


def remove(engine: Engine) -> None:
    """Remove every stand-in, and the roots; what others have built on them inherits their label,
    and stays.
    """
    for name in engine.stand_ins():
        if name in IMAGES or name.startswith(ROOT_IMAGES):
            engine.remove(name)
            say(f"{name}: removed")


def say(line: str) -> None:
    """One line of progress."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
