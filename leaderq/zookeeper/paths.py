"""Znode paths: what is allowed, and how they are put together.

ZooKeeper would refuse a bad path itself, with a message that names nothing; here the error names the value and the rule. The
characters refused are those of ZooKeeper's own ``PathUtils``.
"""

from __future__ import annotations

import re

from leaderq.errors import ConfigurationError

_SEGMENT = "[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+"
_PATH = re.compile(f"(?:/{_SEGMENT})+")
_NAME = re.compile(_SEGMENT)
_RELATIVE = re.compile(r"/\.\.?(?:/|$)")
NAME_LIMIT = 200
"""Longest name of a career or a candidate, in characters; ZooKeeper has no limit, its operators' eyes do."""


def validated_path(path: str, *, open_ended: bool = False) -> str:
    """``path`` itself, if ZooKeeper can use it.

    ``open_ended`` allows a trailing slash, for sequential znodes named by their number only.

    :raises ConfigurationError: naming the path and what is wrong with it.
    """
    body = path[:-1] if open_ended and len(path) > 1 and path.endswith("/") else path
    if body == "/" or (_PATH.fullmatch(body) and "/." not in body):
        return path
    if not body.startswith("/"):
        raise ConfigurationError(f"znode path {path!r} must be absolute: begin it with '/'")
    if _RELATIVE.search(body):
        raise ConfigurationError(f"znode path {path!r} has a '.' or '..' part, which ZooKeeper does not resolve")
    if not _PATH.fullmatch(body):
        raise ConfigurationError(
            f"znode path {path!r} has an empty part, a trailing '/', or a character ZooKeeper refuses (control, surrogate, private)"
        )
    return path


def validated_name(name: str, what: str = "name") -> str:
    """``name`` itself, if it can be one part of a znode path (a career, a candidate, a queue).

    :raises ConfigurationError: naming ``what`` and what is wrong with it.
    """
    if not name:
        raise ConfigurationError(f"{what} is empty; give it at least one character")
    if len(name) > NAME_LIMIT:
        raise ConfigurationError(f"{what} {name[:40]!r}... has {len(name)} characters; {NAME_LIMIT} are allowed")
    if name in (".", ".."):
        raise ConfigurationError(f"{what} {name!r} means a directory to ZooKeeper; choose another")
    if "/" in name:
        raise ConfigurationError(f"{what} {name!r} contains '/', which separates znodes; use '-' or '.' instead")
    if name != name.strip() or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what} {name!r} has spaces at an end, or a control, surrogate or private character; remove it"
        )
    return name


def join(parent: str, *names: str) -> str:
    """The path of ``names`` below ``parent``; ``join("/", "a", "b")`` is ``/a/b``."""
    return "/".join(("" if parent == "/" else parent, *names))


def parent_of(path: str) -> str:
    """The path one level up; that of ``/`` is ``/``."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]
