"""``leaderq completion``: what makes a shell complete leaderq's verbs and options, and what it asks
for while it does: careers, candidates, queues.

Completion must never disturb whoever types: what cannot be had within two seconds is left out, and
nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from leaderq.cli.options import Given, Verb, debug_option
from leaderq.errors import ConfigurationError, NoNode

if TYPE_CHECKING:
    from leaderq.config import Settings
    from leaderq.zookeeper import Session

_WITHIN_S = 2.0


@click.command(cls=Verb)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@debug_option
def completion(shell: str) -> None:
    """Write the script that makes SHELL complete verbs, options, careers, candidates and queues.

    To switch it on, put the line for your shell into its start file and open a new shell:

    \b
      bash, in ~/.bashrc:                   eval "$(leaderq completion bash)"
      zsh, in ~/.zshrc (behind compinit):   eval "$(leaderq completion zsh)"
      fish, in ~/.config/fish/config.fish:  leaderq completion fish | source

    Careers, candidates and queues are looked up in ZooKeeper, with the settings typed so far.

    \b
    Example:
      leaderq completion bash >> ~/.bash_completion
    """
    from click.shell_completion import get_completion_class

    from leaderq.cli.verbs import leaderq

    kind = get_completion_class(shell)
    if kind is None:
        raise ConfigurationError(f"click cannot complete in {shell}")
    click.echo(kind(leaderq, {}, "leaderq", "_LEADERQ_COMPLETE").source())


def careers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The careers that somebody has stood for."""
    return _asked(ctx, incomplete, _careers)


def candidates(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The ids of those that stand for the career typed so far."""
    return _asked(ctx, incomplete, _candidates)


def queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The znodes below what is typed so far; side data of queues is left out."""
    return _asked(ctx, incomplete, lambda session, _: _below(session, incomplete))


def _career_option(help: str) -> click.Option:
    text = f"{help}  [env var: LEADERQ_CAREER]"
    return click.Option(["--career"], metavar="NAME", help=text, shell_complete=careers)


ONE_CAREER = _career_option("the career; required")
SOME_CAREER = _career_option("only this career, instead of all")


def _careers(session: Session, settings: Settings) -> list[str]:
    from leaderq.election import Observer

    return Observer.careers(session, root=settings.root)


def _candidates(session: Session, settings: Settings) -> list[str]:
    from leaderq.election import Observer

    return list(Observer(session, str(settings.career), root=settings.root).view().candidates)


def _below(session: Session, typed: str) -> list[str]:
    parent = typed.rpartition("/")[0]
    with suppress(NoNode):
        names = [name for name in session.children(parent or "/") if not name.endswith("-meta")]
        return [f"{parent}/{name}" for name in sorted(names)]
    return []


def _asked(
    ctx: click.Context, incomplete: str, ask: Callable[[Session, Settings], list[str]]
) -> list[str]:
    from leaderq.cli.connecting import open_session
    from leaderq.cli.output import quiet
    from leaderq.config.settings import BY_NAME

    flags = {
        name: value for name, value in ctx.params.items() if name.removesuffix("_file") in BY_NAME
    }
    try:
        settings = Given(flags, ctx.params.get("config")).load().settings
        quiet()
        with open_session(
            replace(settings, connect_timeout_s=min(_WITHIN_S, settings.connect_timeout_s))
        ) as session:
            return [one for one in ask(session, settings) if one.startswith(incomplete)]
    except Exception:  # noqa: BLE001  (whoever types is told nothing)
        return []
