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
    line in help; or a group of verbs.
    """

    def __init__(
        self,
        name: str,
        *,
        package: str,
        verbs: Mapping[str, tuple[str, str] | Verbs],
        **attributes: Any,
    ) -> None:
        super().__init__(name, **attributes)
        self.subcommand_metavar = "VERB ..."
        self._package = package
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order of help."""
        return list(self._verbs)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs in help."""
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, _line(found)) for verb, found in self._verbs.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a verb."""
        found = self._verbs.get(cmd_name)
        if not isinstance(found, tuple):
            return found
        module = importlib.import_module(f"{self._package}.{found[0]}")
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that ``args`` begin with; raises a usage error that names the nearest one."""
        verbs = self.list_commands(ctx)
        if (
            args
            and args[0] not in verbs
            and not args[0].startswith("-")
            and not ctx.resilient_parsing
        ):
            near = difflib.get_close_matches(args[0], verbs, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(verbs)}"
            raise click.UsageError(f"no such verb: {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def _line(found: tuple[str, str] | Verbs) -> str:
    return found[1] if isinstance(found, tuple) else str(found.help)


def _behind_the_verb(args: list[str]) -> list[str]:
    rest = list(args)
    moved: list[str] = []
    while rest and (needs_value := takes_value(rest[0])) is not None:
        moved += rest[: 1 + needs_value]
        del rest[: 1 + needs_value]
    return [rest[0], *moved, *rest[1:]] if rest and not rest[0].startswith("-") else args


_CLI = "leaderq.cli"


@click.group(
    cls=Verbs,
    package=_CLI,
    verbs={
        "run": ("run", "Stand for election, and lead when elected."),
        "lead": ("lead", "Run a command while leading."),
        "status": ("status", "Show who leads, or why nobody does."),
        "members": ("status", "List candidates in the order of their turns."),
        "history": ("status", "Show the last terms, and why they ended."),
        "step-down": ("operating", "Let the next candidate lead."),
        "transfer": ("operating", "Let a chosen candidate lead."),
        "pause": ("operating", "Begin no new work, without a change of leader."),
        "resume": ("operating", "End a pause."),
        "raise-floor": ("operating", "Set the lowest number that the next term may get."),
        "forget": ("operating", "Delete all that is kept of a career."),
        "dead": Verbs(
            "dead",
            package=f"{_CLI}.dead",
            verbs={
                "ls": ("letters", "List the letters there are."),
                "show": ("letters", "Show one letter in full."),
                "replay": ("replay", "Send records back to where they came from."),
            },
            help="Look at records set aside as dead letters, and replay them.",
        ),
        "queue": ("queue", "Inspect, fill, drain and repair ZooKeeper queues."),
        "analyze": ("analyze", "Tell whether coalescing pays on a stream of requests."),
        "journal": Verbs(
            "journal",
            package=f"{_CLI}.journal",
            verbs={
                "inspect": ("directory", "Show what is in a journal."),
                "verify": ("directory", "Read every byte, and check every record."),
                "replay": ("replay", "Write records to standard output."),
                "send": ("send", "Send to Kafka what a dead program left in a journal."),
                "truncate": ("directory", "Give up records, or files set aside."),
            },
            help="Inspect, send and repair journals of producers.",
        ),
        "config": Verbs(
            "config",
            package=_CLI,
            verbs={
                "show": ("config", "Show every setting with its value and source."),
                "sample": ("config", "Write a leaderq.toml to begin with."),
            },
            help="Show settings and where they come from.",
        ),
        "doctor": ("doctor", "Find out what is missing or unreachable."),
        "topics": Verbs(
            "topics",
            package=_CLI,
            verbs={"create": ("topics", "Create topics, with partitions and configs.")},
            help="Create topics on Kafka.",
        ),
        "servers": Verbs(
            "servers",
            package=_CLI,
            verbs={"up": ("servers", "Start one ZooKeeper and one Kafka, until Ctrl-C.")},
            help="Run ZooKeeper and Kafka here, for trying things.",
        ),
        "demo": ("demo", "Watch leadership change hands."),
        "completion": ("completion", "Complete verbs, careers and queues in a shell."),
        "version": ("config", "Show versions."),
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(
    package_name="leaderq",
    message="%(prog)s %(version)s",
    help="Show the version; see also leaderq version.",
)
def leaderq() -> None:
    """Run work as an elected leader: one process at a time, another when it dies.

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
