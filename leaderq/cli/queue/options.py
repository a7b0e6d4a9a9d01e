"""What the verbs about queues share: their options, and the queue that they are about."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leaderq.cli.completion import queues
from leaderq.cli.connecting import connected
from leaderq.cli.options import CONNECTION, Given, takes_settings
from leaderq.errors import ConfigurationError, NoNode

if TYPE_CHECKING:
    from leaderq.cli.queue.dyno import DynoAdmin
    from leaderq.queues.admin import QueueAdmin
    from leaderq.queues.wire.names import QueueKind
    from leaderq.zookeeper import Session

    Operated = DynoAdmin | QueueAdmin

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")

takes_connection = takes_settings(*CONNECTION, hidden=("root",))
"""How to reach ZooKeeper. Queues lie anywhere, not below the root of careers."""
_KINDS = ("plain", "id", "priority", "delay", "simple", "dyno")
_META_PATH, _DYNO = "leaderq.queue.meta_path", "leaderq.queue.dyno"


def _as_kind(ctx: click.Context, param: click.Parameter, value: str | None) -> QueueKind | None:
    from leaderq.queues.wire.names import QueueKind  # not needed for --help

    ctx.meta[_DYNO] = value == "dyno"
    return None if value in (None, "dyno") else QueueKind(value)


def _as_path(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    from leaderq.zookeeper.paths import validated_path

    if value is None:
        return None
    return validated_path(value.rstrip("/") or "/")


def _as_queue(ctx: click.Context, param: click.Parameter, value: str) -> str:
    path = _as_path(ctx, param, value)
    if path is None or path == "/":
        raise click.BadParameter("'/' is not a queue; name a path such as /orders", ctx, param)
    return path


def _keep_meta_path(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[_META_PATH] = _as_path(ctx, param, value)


meta_path_option: Callable[[F], F] = click.option(
    "--meta-path",
    metavar="PATH",
    callback=_keep_meta_path,
    expose_value=False,
    help="where the queue's side data is, if its processes were given a meta_path",
)


def meta_path() -> str | None:
    """What ``--meta-path`` says."""
    given: str | None = click.get_current_context().meta.get(_META_PATH)
    return given


def queue_argument(verb: F) -> F:
    """The path of the queue that a verb is about, and where its side data lies."""
    return click.argument("path", metavar="PATH", callback=_as_queue, shell_complete=queues)(
        meta_path_option(verb)
    )


root_argument: Callable[[F], F] = click.argument(
    "path", metavar="PATH", callback=_as_path, shell_complete=queues
)
kind_option: Callable[[F], F] = click.option(
    "--kind",
    type=click.Choice(_KINDS),
    callback=_as_kind,
    help="the recipe of the queue; default: told by the names of its items",
)
lock_path_option: Callable[[F], F] = click.option(
    "--lock-path",
    metavar="PATH",
    callback=_as_path,
    help="where the queue's consumers lock items; required if they do",
)


@contextmanager
def keeping(
    given: Given,
    path: str,
    kind: QueueKind | None = None,
    lock_path: str | None = None,
    *,
    may_be_new: bool = False,
) -> Iterator[tuple[Session, Operated]]:
    """A session, and the queue in an operator's hands.

    :raises ConfigurationError: there is nothing at ``path``, unless it ``may_be_new``.
    """
    with connected(given) as (session, _), operated(session, path, kind, lock_path) as keeper:
        if not may_be_new and not keeper.is_there():
            raise ConfigurationError(missing(session, path))
        if lock_path is not None and session.exists(lock_path) is None:
            click.echo(f"nobody has ever used the lock path {lock_path}", err=True)
        yield session, keeper


def keeping_dyno(given: Given, path: str) -> AbstractContextManager[DynoAdmin]:
    """As :func:`keeping`, for what only Dyno queues have."""
    from leaderq.cli.queue.dyno import DynoAdmin

    return _keeping_only(DynoAdmin, "Dyno queues", given, path)


def keeping_recipe(
    given: Given, path: str, kind: QueueKind | None = None, lock_path: str | None = None
) -> AbstractContextManager[QueueAdmin]:
    """As :func:`keeping`, for what only queues of Curator's recipes have."""
    from leaderq.queues.admin import QueueAdmin

    return _keeping_only(QueueAdmin, "queues of Curator's recipes", given, path, kind, lock_path)


@contextmanager
def _keeping_only(only: type[K], which: str, given: Given, path: str, *told: Any) -> Iterator[K]:
    with keeping(given, path, *told) as (_, keeper):
        if not isinstance(keeper, only):
            verb = click.get_current_context().info_name
            raise ConfigurationError(f"leaderq queue {verb} is for {which}, and {path} is not one")
        yield keeper


@contextmanager
def operated(
    session: Session, path: str, kind: QueueKind | None, lock_path: str | None
) -> Iterator[Operated]:
    """The queue at ``path``: a Dyno queue if that lies there, or is to be made by ``--kind dyno``.

    :raises ConfigurationError: something else lies there than was told.
    """
    from leaderq.cli.queue.dyno import DynoAdmin, is_dyno
    from leaderq.queues.admin import QueueAdmin
    from leaderq.queues.wire.znodes import QueuePaths

    others = kind or lock_path or meta_path()
    is_told, is_found = click.get_current_context().meta.get(_DYNO, False), is_dyno(session, path)
    if is_found and others is not None:
        raise ConfigurationError(
            f"{path} is a Dyno queue: it has no --lock-path, no --meta-path, and no other --kind"
        )
    if is_told and not is_found and session.exists(path) is not None and session.children(path):
        raise ConfigurationError(f"{path} is not a Dyno queue, and --kind dyno was given")
    if not (is_found or is_told):
        yield QueueAdmin(session, QueuePaths(path, lock_path, meta_path()), kind)
        return
    with closing(DynoAdmin(session, path)) as keeper:
        yield keeper


def missing(session: Session, path: str) -> str:
    """What to say of a path that is not there."""
    parent, _, name = path.rpartition("/")
    try:
        near = difflib.get_close_matches(name, session.children(parent or "/"), n=1)
    except NoNode:
        near = []
    hint = (
        f"did you mean {parent}/{near[0]}?" if near else "leaderq queue ls lists those below a path"
    )
    return f"there is no queue at {path} on {session.address}; {hint}"
