"""Which verb lives in which file; options may stand before the verb as well as behind it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click

from leaderq.cli.options import takes_value


class Verbs(click.Group):
    """A group of verbs that are loaded when they are used: help lists them without loading any.

    Moves settings given before a verb behind it, and guesses what a misspelt verb was meant to be.
    ``verbs``: of each its module below ``package``, which has an attribute of its name, and its
    line in help.
    """

    def __init__(self, *args: Any, package: str, verbs: Mapping[str, tuple[str, str]], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.subcommand_metavar = "VERB ..."
        self._package = package
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of help."""
        return list(self._verbs)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs in help."""
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, line) for verb, (_, line) in self._verbs.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a verb."""
        if cmd_name not in self._verbs:
            return None
        module = importlib.import_module(f"{self._package}.{self._verbs[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, with the options that belong to the verb put where it sees them; show help if
        there is nothing to parse.
        """
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, _behind_the_verb(args))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that ``args`` begin with; raises a usage error that names the nearest one."""
        verbs = self.list_commands(ctx)
        if args and args[0] not in verbs and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], verbs, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(verbs)}"
            raise click.UsageError(f"no such verb: {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def _behind_the_verb(args: list[str]) -> list[str]:
    rest = list(args)
    moved: list[str] = []
    while rest and (needs_value := takes_value(rest[0])) is not None:
        moved += rest[: 1 + needs_value]
        del rest[: 1 + needs_value]
    return [rest[0], *moved, *rest[1:]] if rest and not rest[0].startswith("-") else args


@click.group(
    cls=Verbs,
    package="leaderq.cli",
    verbs={
        "run": ("run", "Stand for election, and lead when elected."),
        "lead": ("lead", "Run a command while leading."),
        "status": ("status", "Show who leads, or why nobody does."),
        "members": ("status", "List candidates in the order of their turns."),
        "history": ("status", "Show the last terms, and why they ended."),
        "step-down": ("operating", "Let the next candidate lead."),
        "transfer": ("operating", "Let a candidate of choice lead."),
        "pause": ("operating", "Begin no new work, without a change of leader."),
        "resume": ("operating", "End a pause."),
        "raise-floor": ("operating", "Number the next term at least so high."),
        "forget": ("operating", "Delete all that is kept of a career."),
        "dead": ("dead", "Look at records set aside as dead letters, and replay them."),
        "queue": ("queue", "Look into ZooKeeper queues, fill, drain and repair them."),
        "analyze": ("analyze", "Tell whether coalescing pays on a stream of requests."),
        "journal": ("journal", "Look into journals of producers, check, send and repair them."),
        "config": ("config", "Show settings and where they come from."),
        "doctor": ("doctor", "Find out what is missing or unreachable."),
        "topics": ("topics", "Create topics on Kafka."),
        "servers": ("servers", "Run ZooKeeper and Kafka here, for trying things."),
        "demo": ("demo", "Watch leadership change hands."),
        "completion": ("completion", "Complete verbs, careers and queues in a shell."),
        "version": ("config", "Show versions."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(
    package_name="leaderq", message="%(prog)s %(version)s", help="Show the version; see also leaderq version."
)
def leaderq() -> None:
    """Leader-elected consumers that stay alone and available.

    \b
    Examples:
      leaderq demo                                  watch leadership change hands
      leaderq run billing:AdBilling                 stand for election with a career of yours
      leaderq lead --career report -- ./report.sh   run a command, in any language, as leader
      leaderq status                                who leads which career
      leaderq transfer --career ad-billing --to b   let candidate b lead

    Settings come from (last wins) defaults, leaderq.toml, LEADERQ_* variables and options; see
    leaderq config show.
    """
