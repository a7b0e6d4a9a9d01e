"""Root file systems to build on: Debian with few packages, made by debootstrap and apt with this
machine's own mirror.

The official images are Debian 13 or have its versions (Java 21, PostgreSQL 17, Python 3.13), so
that is what stands in for them. The mirror, proxies and date checks are those of the machine's apt
at run time; none is named here. Each package set becomes one image,
``leaderq-standin/<root>:trixie``, imported once and known again by its recipe. Packages are
installed in namespaces of their own: what their scripts start or mount ends with them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from standins.engine import RECIPE, STANDIN, Engine, Missing

SUITE = "trixie"
ROOT_IMAGES = "leaderq-standin/"
PACKAGES = {
    "java": ("openjdk-21-jre-headless", "netcat-openbsd", "procps"),
    "postgres": ("postgresql-17",),
    "python": ("python3", "python3-pip", "python3-venv", "ca-certificates", "procps"),
}
MIRROR_VARIABLE = "LEADERQ_DEBIAN_MIRROR"
# What an image has no use for, or what would tell of this machine.
LEFT_OUT = (
    "./usr/share/doc/*", "./usr/share/man/*", "./usr/share/info/*", "./usr/share/locale/*",
    "./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/log/*",
    "./etc/apt/sources.list", "./etc/resolv.conf",
    "./var/lib/postgresql/17/*", "./etc/postgresql/17/*", "./usr/lib/python3*/EXTERNALLY-MANAGED",
)  # fmt: skip
_OF_THE_MACHINE = re.compile(
    r'^(Acquire::(?:https?::Proxy\S*|Check-Valid-Until|Check-Date)) "(.+)";$', re.MULTILINE
)
_CERTIFICATES = Path("usr/local/share/ca-certificates")
_TRUSTING = "python"
_NO_START = "#!/bin/sh\nexit 101\n"

Say = Callable[[str], None]


class Roots:
    """Makes roots that the engine lacks; debootstrap runs at most once, and its folder goes when
    the ``with`` block ends.
    """

    def __init__(self, engine: Engine, say: Say) -> None:
        self._engine = engine
        self._say = say
        self._folder: Path | None = None

    def __enter__(self) -> Roots:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def ensure(self, name: str) -> str:
        """The image of the root ``name``."""
        image, recipe = f"{ROOT_IMAGES}{name}:{SUITE}", root_recipe(name)
        labels = self._engine.labels(image)
        if labels is None or labels.get(RECIPE) != recipe:
            self._say(f"{image}: installing {', '.join(PACKAGES[name])} ...")
            root = self._installed(name)
            self._engine.import_root(root, image, {STANDIN: "true", RECIPE: recipe}, LEFT_OUT)
            shutil.rmtree(root)
        return image

    def _installed(self, name: str) -> Path:
        bare = self._bare()
        root = bare.parent / name
        _run("cp", "--archive", str(bare), str(root))
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        certificates = Path("/") / _CERTIFICATES
        # pip in a build must trust whom this machine trusts
        if name == _TRUSTING and certificates.is_dir():
            shutil.copytree(certificates, root / _CERTIFICATES, dirs_exist_ok=True)
        apt = [
            "apt-get",
            *_options(),
            "--yes",
            "--quiet",
            "-o",
            "Dpkg::Options::=--force-unsafe-io",
        ]
        _inside(root, *apt, "update")
        _inside(root, *apt, "install", "--no-install-recommends", *PACKAGES[name])
        (root / "usr/sbin/policy-rc.d").unlink()
        return root

    def _bare(self) -> Path:
        if self._folder is None:
            _check_the_machine()
            self._folder = Path(tempfile.mkdtemp(prefix="leaderq-standins-"))
        bare = self._folder / "bare"
        if not bare.exists():
            self._say(f"debootstrap of Debian {SUITE} ...")
            proxy = dict(_OF_THE_MACHINE.findall(_run("apt-config", "dump"))).get(
                "Acquire::http::Proxy"
            )
            environment = {**os.environ, "http_proxy": proxy} if proxy else None
            _run(
                "debootstrap",
                "--variant=minbase",
                SUITE,
                str(bare),
                mirror(),
                environment=environment,
            )
            policy = bare / "usr/sbin/policy-rc.d"  # packages must not start their servers here
            policy.write_text(_NO_START)
            policy.chmod(0o755)
        return bare


def root_recipe(name: str) -> str:
    """Changes with whatever the root is made of; not with what Debian has corrected meanwhile."""
    parts = [SUITE, *PACKAGES[name], *LEFT_OUT]
    if name == _TRUSTING:
        parts += sorted(path.name for path in (Path("/") / _CERTIFICATES).glob("*.crt"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def mirror() -> str:
    """The Debian mirror that this machine's apt uses, or the one that is named in
    ``LEADERQ_DEBIAN_MIRROR``.
    """
    if named := os.environ.get(MIRROR_VARIABLE):
        return named
    lines = _run(
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    )
    for line in lines.splitlines():
        address, release, component = line.split()
        if component == "main" and "-" not in release and address.rstrip("/").endswith("/debian"):
            return address
    raise Missing(
        f"apt of this machine is configured for no Debian mirror; name one in {MIRROR_VARIABLE}"
    )


def _check_the_machine() -> None:
    if os.geteuid() != 0:
        raise Missing("building the base of the stand-ins needs root (debootstrap and chroot do)")
    for program, package in (
        ("debootstrap", "debootstrap"),
        ("apt-get", "apt"),
        ("unshare", "util-linux"),
    ):
        if shutil.which(program) is None:
            raise Missing(
                f"there is no {program}; install it (on Debian: apt-get install {package})"
            )


def _options() -> list[str]:
    found = _OF_THE_MACHINE.findall(_run("apt-config", "dump"))
    return [part for name, value in found for part in ("-o", f"{name}={value}")]


def _inside(root: Path, *command: str) -> None:
    clean = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "DEBIAN_FRONTEND": "noninteractive",
        "LC_ALL": "C.UTF-8",
        "HOME": "/root",
    }
    own = (
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        f"--root={root}",
    )
    _run(*own, *command, environment=clean)


def _run(*command: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise Missing(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout
