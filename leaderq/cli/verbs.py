"""Says which verb is in which file; options may stand before a verb or after it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any

import click

from leaderq.cli.options import meant, takes_value


class Verbs(click.Group):
    """A group of verbs, each loaded when it is used: help lists them without loading any.

    Settings before a verb are moved after it; for a misspelt verb, the nearest one is suggested.
    ``verbs`` maps each verb to the module that has it under its name, and to its line in help; or
    to a group. ``line`` is the group's own line in help; ``examples`` use its verbs.
    """

    def __init__(
        self,
        name: str,
        *,
        verbs: Mapping[str, tuple[str, str] | Verbs],
        line: str = "",
        examples: Sequence[str] = (),
        **attributes: Any,
    ) -> None:
        if line:
            attributes["help"] = "\n  ".join((f"{line}\n\n\b\nExamples:", *examples))
        super().__init__(name, **attributes)
        self.line = line
        self.subcommand_metavar = "VERB ..."
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._verbs)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(
                (name, found[1] if isinstance(found, tuple) else found.line)
                for name, found in self._verbs.items()
            )

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._verbs.get(cmd_name)
        if not isinstance(found, tuple):
            return found
        module = importlib.import_module(f"leaderq.cli.{found[0]}")
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(module, f"{name}_" if iskeyword(name) else name)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move options that stand before the verb after it, and parse; show help if there are no
        arguments.
        """
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, _behind_the_verb(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb that ``args`` begin with; if there is none, raise a usage error that
        names the nearest one.
        """
        verbs = self.list_commands(ctx)
        is_option = not args or args[0].startswith("-")
        if not (is_option or ctx.resilient_parsing or args[0] in verbs):
            hint = meant(args[0], verbs, f"choose one of {', '.join(verbs)}")
            raise click.UsageError(f"no such verb: {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def _behind_the_verb(args: list[str]) -> list[str]:
    rest = list(args)
    moved: list[str] = []
    while rest and (needs_value := takes_value(rest[0])) is not None:
        moved += rest[: 1 + needs_value]
        del rest[: 1 + needs_value]
    return [rest[0], *moved, *rest[1:]] if rest and not rest[0].startswith("-") else args


_DEAD = Verbs(
    "dead",
    verbs={
        "ls": ("dead", "List dead letters."),
        "show": ("dead", "Show one dead letter in full."),
        "replay": ("dead", "Send records back to where they came from."),
        "bury": ("dead", "Let a record pass that holds the work up."),
    },
    line="Look at records set aside as dead letters, and replay them.",
    examples=(
        "leaderq dead ls --career ad-billing",
        "leaderq dead replay --career ad-billing --dry-run",
    ),
)
_QUEUE = Verbs(
    "queue",
    verbs={
        "ls": ("queue.items", "Show queues: depth, consumers, dead letters."),
        "put": ("queue.put", "Put items from arguments or standard input."),
        "peek": ("queue.items", "Show items, without taking them."),
        "stats": ("queue.items", "Show a Dyno queue shard by shard."),
        "ack": ("queue.items", "Remove messages from a Dyno queue as done."),
        "drain": ("queue.drain", "Write items to standard output, and take them out."),
        "purge": ("queue.items", "Delete all items."),
        "rm": ("queue.items", "Delete queues with everything beside them."),
        "dead": ("queue.items", "Show dead letters, or delete them."),
        "requeue": ("queue.items", "Send dead letters back."),
        "pause": ("queue.items", "Stop consumers from beginning new items."),
        "resume": ("queue.items", "End a pause."),
    },
    line="Inspect, fill, drain and repair ZooKeeper queues.",
    examples=(
        "leaderq queue ls /",
        "leaderq queue put /orders one two",
        "leaderq queue dead /orders",
    ),
)
_JOURNAL = Verbs(
    "journal",
    verbs={
        "inspect": ("journal", "Show what is in a journal."),
        "verify": ("journal", "Read every byte, and check every record."),
        "replay": ("journal", "Write records to standard output."),
        "send": ("journal", "Send to Kafka what a dead program left in a journal."),
        "truncate": ("journal", "Discard records, or files set aside."),
    },
    line="Inspect, send and repair journals of producers.",
    examples=(
        "leaderq journal inspect /var/lib/clicks/journal",
        "leaderq journal verify /var/lib/clicks/journal",
    ),
)
_SCHEDULE = Verbs(
    "schedule",
    verbs={
        "ls": ("schedule", "Show schedules: last and next ticks."),
        "history": ("schedule", "Show what became of ticks."),
        "run-now": ("schedule", "Do the work once more, now."),
        "pause": ("schedule", "Let no tick begin."),
        "resume": ("schedule", "End a pause."),
    },
    line="Look at schedules of careers, run and pause them.",
    examples=("leaderq schedule ls", "leaderq schedule run-now nightly --career report"),
)
_CONFIG = Verbs(
    "config",
    verbs={
        "show": ("config", "Show every setting with its value and source."),
        "sample": ("config", "Write a leaderq.toml to start from."),
        "schema": ("config", "Write a JSON schema of leaderq.toml, for editors."),
    },
    line="Show settings and where they come from.",
    examples=("leaderq config sample > leaderq.toml", "leaderq config show --career ad-billing"),
)
_OFFSETS = Verbs(
    "offsets",
    verbs={
        "show": ("offsets", "Show where a career reads on."),
        "set": ("offsets", "Set where it reads on."),
        "to-time": ("offsets", "Let it read on at a time."),
        "export": ("offsets", "Write its offsets as lines of JSON."),
        "import": ("offsets", "Set offsets from lines of JSON."),
    },
    line="Look at the offsets of a career, and set them.",
    examples=(
        "leaderq offsets show billing:AdBilling",
        "leaderq offsets to-time billing:AdBilling 2026-11-23T08:00 --yes",
    ),
)
_OBSERVE = Verbs(
    "observe",
    verbs={
        "rules": ("observe", "Write alerts for Prometheus."),
        "dashboard": ("observe", "Write a dashboard for Grafana."),
    },
    line="Write what a monitoring begins with: alerts, a dashboard.",
    examples=(
        "leaderq observe rules > leaderq-rules.yml",
        "leaderq observe dashboard > leaderq-dashboard.json",
    ),
)
_TOPICS = Verbs(
    "topics",
    verbs={
        "create": ("topics", "Create topics, with partitions and configs."),
        "ls": ("topics", "List topics."),
        "put": ("topics", "Send a few records."),
        "show": ("topics", "Show the newest records."),
    },
    line="Create and list topics on Kafka, put a few records, look at them.",
    examples=("leaderq topics create clicks --partitions 6", "leaderq topics put clicks one two"),
)
_SERVERS = Verbs(
    "servers",
    verbs={
        "up": ("servers", "Start one ZooKeeper and one Kafka."),
        "down": ("servers", "Stop those in the background."),
    },
    line="Run ZooKeeper and Kafka here, for trying things.",
    examples=("leaderq servers up", "leaderq servers up --detach"),
)


@click.group(
    cls=Verbs,
    verbs={
        "run": ("run", "Stand for election, and lead when elected."),
        "lead": ("run", "Run a command while leading."),
        "deadline": ("run", "In such a command: tell how long the lease lasts."),
        "status": ("careers", "Show who leads, or why nobody does."),
        "top": ("top", "Watch careers and queues, and act on them."),
        "members": ("careers", "List candidates in the order of their turns."),
        "history": ("careers", "Show the last terms, and why they ended."),
        "step-down": ("careers", "Let the next candidate lead."),
        "transfer": ("careers", "Let a chosen candidate lead."),
        "pause": ("careers", "Stop new work, without a change of leader."),
        "resume": ("careers", "End a pause."),
        "raise-floor": ("careers", "Set the lowest number that the next term may get."),
        "forget": ("careers", "Delete everything stored for a career."),
        "schedule": _SCHEDULE,
        "dead": _DEAD,
        "offsets": _OFFSETS,
        "queue": _QUEUE,
        "journal": _JOURNAL,
        "config": _CONFIG,
        "observe": _OBSERVE,
        "dashboard": ("dashboard", "Serve a page about careers, queues and schedules."),
        "doctor": ("doctor", "Find out what is missing or unreachable."),
        "topics": _TOPICS,
        "servers": _SERVERS,
        "demo": ("demo", "Watch leadership change hands."),
        "completion": ("config", "Complete verbs, careers and queues in a shell."),
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
    """Run work as an elected leader: one process at a time, and another one when it dies.

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
