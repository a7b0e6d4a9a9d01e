"""Options that the verbs about queues share, and functions that open the queue of a verb."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TypeVar

import click

from leaderq.admin.dyno_queues import DynoAdmin, is_dyno
from leaderq.cli.connecting import connected, queues
from leaderq.cli.options import CONNECTION, Given, verb
from leaderq.cli.output import say
from leaderq.errors import ConfigurationError, NoNode, NoPermission
from leaderq.queues.admin import QueueAdmin
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Session
from leaderq.zookeeper.paths import own_path, validated_path

K = TypeVar("K")
Operated = DynoAdmin | QueueAdmin


def _as_path(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return None if value is None else validated_path(value.rstrip("/") or value[:1])


def _as_queue(ctx: click.Context, param: click.Parameter, value: str) -> str | None:
    path = _as_path(ctx, param, value)
    if path == "/":
        raise click.BadParameter("'/' is not a queue; name a path such as /orders", ctx, param)
    return path


def _as_queues(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    return [own_path(path) for one in values if (path := _as_queue(ctx, param, one))]


queue_verb = partial(verb, *CONNECTION, hidden=("root",))
"""A verb that reaches ZooKeeper. Queues can be anywhere, not only below the root of careers."""
META_PATH = click.Option(
    ["--meta-path"],
    metavar="PATH",
    callback=_as_path,
    help="where the queue's side data is, if its processes were given a meta_path",
)
PATH = click.Argument(["path"], metavar="PATH", callback=_as_queue, shell_complete=queues)
PATHS = click.Argument(["paths"], metavar="PATH...", nargs=-1, required=True, callback=_as_queues)
QUEUE = (PATH, META_PATH)
ROOT = click.Argument(["path"], metavar="PATH", callback=_as_path, shell_complete=queues)
KIND = click.Option(
    ["--kind"],
    type=click.Choice([*(kind.value for kind in QueueKind), "dyno"]),
    help="the recipe of the queue; default: told by the names of its items",
)
LOCK_PATH = click.Option(
    ["--lock-path"],
    metavar="PATH",
    callback=_as_path,
    help="where the queue's consumers lock items; required if they do",
)


def told_kind(given: Given) -> QueueKind | None:
    """The value of ``--kind``, if it is one of Curator's recipes; else ``None``."""
    word = vars(given).get("kind")
    return None if word in (None, "dyno") else QueueKind(word)


@contextmanager
def operated(
    session: Session, given: Given, path: str, *, may_be_new: bool = False
) -> Iterator[Operated]:
    """Open the queue at ``path``: as a Dyno queue if it is one, or if ``--kind dyno`` says so.

    :raises ConfigurationError: the queue is of another kind than the options say; or there is no
        queue, and it may not be new.
    """
    kind = told_kind(given)
    lock_path, meta_path = (vars(given).get(name) for name in ("lock_path", "meta_path"))
    is_told, is_found = vars(given).get("kind") == "dyno", is_dyno(session, path)
    if is_found and (kind or lock_path or meta_path):
        raise ConfigurationError(
            f"{path} is a Dyno queue: it has no --lock-path, no --meta-path, and no other --kind"
        )
    if is_told and not is_found and session.exists(path) is not None and session.children(path):
        raise ConfigurationError(f"{path} is not a Dyno queue, and --kind dyno was given")
    with ExitStack() as stack:
        keeper: Operated
        if is_found or is_told:
            keeper = stack.enter_context(closing(DynoAdmin(session, path)))
        else:
            keeper = QueueAdmin(session, QueuePaths(path, lock_path, meta_path), kind)
        if not (may_be_new or keeper.is_there()):
            raise ConfigurationError(missing(session, path))
        if lock_path is not None and session.exists(lock_path) is None:
            say(f"nobody has ever used the lock path {lock_path}")
        yield keeper


@contextmanager
def keeping(given: Given, path: str | None = None) -> Iterator[Operated]:
    """A block with the queue of the verb, or that at ``path``, opened for an operator. Raises
    ``ConfigurationError`` if there is no queue.
    """
    with (
        connected(given) as session,
        operated(session, given, given.path if path is None else path) as keeper,
    ):
        yield keeper


@contextmanager
def keeping_only(kind: type[K], given: Given) -> Iterator[K]:
    """As :func:`keeping`, and refuses a queue that is not of ``kind``."""
    with keeping(given) as keeper:
        if not isinstance(keeper, kind):
            which = "Dyno queues" if kind is DynoAdmin else "queues of Curator's recipes"
            name, path = click.get_current_context().info_name, given.path
            raise ConfigurationError(f"leaderq queue {name} is for {which}, and {path} is not one")
        yield keeper


def missing(session: Session, path: str) -> str:
    """The error for a path that is not there."""
    parent, _, name = path.rpartition("/")
    hint = "leaderq queue ls lists those below a path"
    try:
        for near in difflib.get_close_matches(name, session.children(parent or "/"), n=1):
            hint = f"did you mean {parent}/{near}?"
    except (NoNode, NoPermission):
        pass
    return f"there is no queue at {path} on {session.address}; {hint}"
