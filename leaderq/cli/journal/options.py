"""What the verbs about journals share: their options, and how damage is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.producing.journal import Damage

F = TypeVar("F", bound=Callable[..., Any])


def option(name: str, *names: str, **attributes: Any) -> Callable[[F], F]:
    """An option of a verb about journals, with its variable."""
    variable = "LEADERQ_JOURNAL_" + name.removeprefix("--").replace("-", "_").upper()
    return click.option(name, *names, envvar=variable, show_envvar=True, **attributes)


def switch(name: str, *names: str, help: str) -> Callable[[F], F]:
    """An option without a value."""
    return option(name, *names, is_flag=True, help=help)


directory_argument: Callable[[F], F] = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
yes_option: Callable[[F], F] = switch("--yes", help="really do it; needed")


@contextmanager
def readable(directory: Path) -> Iterator[None]:
    """Say which directory cannot be read, and why.

    :raises ConfigurationError: it cannot be.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise ConfigurationError(f"journal {str(directory)!r} cannot be read: {exc}") from exc


def damage_json(damage: Damage) -> dict[str, Any]:
    """Damage as an object."""
    return {
        "what": "damage",
        "file": damage.file,
        "reason": damage.reason,
        "offset": damage.offset,
        "bytes": damage.size,
        "lost_ids": damage.lost_ids,
    }


def damage_sentence(damage: Damage) -> str:
    """Damage as a line."""
    ids = f"; records {damage.lost_ids[0]} to {damage.lost_ids[1]} are lost" if damage.lost_ids else ""
    return f"{damage.file}: {damage.reason} ({damage.size} bytes at {damage.offset}){ids}"
