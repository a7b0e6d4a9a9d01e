"""Finds out which software this process runs: the versions of leaderq and of the career's package,
and the career's class.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterable
from pathlib import Path, PurePath

from leaderq.career import ILeaderCareer
from leaderq.election.software import LONGEST_VERSION, Software, class_shown, usable_version

log = logging.getLogger(__name__)


def software_of(career: ILeaderCareer | None = None) -> Software:
    """The software that a candidate with this career tells others. The version is the career's
    attribute ``version``, else that of the distribution to which the career's top-level module
    belongs.
    """
    own = installed_version("leaderq")
    if career is None:
        return Software(leaderq=own)
    kind = type(career)
    module = _module_name(kind)
    shown = class_shown(f"{module}:{kind.__qualname__}")
    return Software(_version_of(career, module, shown), own, shown)


def _version_of(career: ILeaderCareer, module: str, shown: str) -> str | None:
    try:
        said = getattr(career, "version", None)
    except Exception as exc:  # noqa: BLE001  (a property of the user's)
        said = exc
    usable = usable_version(said)
    if usable is None and said is not None and not (isinstance(said, str) and not said):
        log.warning(
            "version of the career is not used, it must be one short line of text"
            " class=%s version=%s most=%d",
            shown,
            f"{said!r:.{LONGEST_VERSION}}" if isinstance(said, str) else type(said).__name__,
            LONGEST_VERSION,
        )
    return usable or installed_version(module.partition(".")[0])


def _module_name(kind: type) -> str:
    """The name of the module of ``kind``; if that runs as the program, its true name where it has
    one.
    """
    if kind.__module__ != "__main__":
        return kind.__module__
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "__main__" if spec is None else str(spec.name).removesuffix(".__main__")


@functools.cache
def installed_version(module: str) -> str | None:
    """The version of the distribution to which the top-level module ``module`` belongs; ``None``:
    unknown.

    That is the distribution of the same name. If there is none, it is the one distribution in the
    module's folder whose metadata list the module.
    """
    # Slow to import, and needed only where somebody stands.
    from importlib import metadata

    try:
        return usable_version(metadata.version(module))
    except Exception:  # noqa: BLE001, S110  (PackageNotFoundError, or metadata that are damaged)
        pass
    try:
        # Not in all of sys.path, which takes a quarter of a second: most have been found by now.
        listed = {
            each.version
            for each in metadata.distributions(path=_folders(module))
            if module in _top_level(each.read_text("top_level.txt"), each.files)
        }
    except Exception:  # noqa: BLE001  (likewise)
        return None
    return usable_version(listed.pop()) if len(listed) == 1 else None


def _folders(module: str) -> list[str]:
    """The folders in which the module, or the parts of the package, were found."""
    found = sys.modules.get(module)
    parts = getattr(found, "__path__", None) or [getattr(found, "__file__", None)]
    return [str(Path(part).parent) for part in parts if module != "__main__" and part]


def _top_level(declared: str | None, files: Iterable[PurePath] | None) -> set[str]:
    return set((declared or "").split()) or {each.parts[0].split(".")[0] for each in files or ()}
