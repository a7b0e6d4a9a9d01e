"""The options of verbs: their own ones, and those made from the table of settings, so that no
setting is described twice.

Click knows neither defaults nor variables of settings: only the resolver decides which one wins,
and where a value comes from.
"""

from __future__ import annotations

import codecs
import difflib
import inspect
import math
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from leaderq.config.settings import TABLE, Row, Section
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.config import Configuration, Settings

CONNECTION = (Section.CONNECTION, Section.ZOOKEEPER_SECURITY)
_MOST = 2**31 - 1  # as Kafka's requests and ZooKeeper's can say
_LEFT_COLUMN = 30  # leaves room for the longest name of a variable in 80 columns


class Given:
    """The parsed command line. The verb's own options are attributes, by their names."""

    def __init__(self, flags: Mapping[str, Any], config: str | None, **own: Any) -> None:
        self._flags = flags
        self._config = config
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the verb has no option {name!r}")

    def load(self, *, career: str | None = None) -> Configuration:
        """Return all settings, resolved. ``career``: the name of the class, for a verb that runs
        one.
        """
        from leaderq.config import load  # not needed for --help

        return load(self._flags, config=self._config, career=career)

    @cached_property
    def settings(self) -> Settings:
        """Raises :class:`~leaderq.errors.ConfigurationError`."""
        return self.load().settings


class SettingOption(click.Option):
    """An option for a setting. Help explains it below the heading of its ``section``, or only lists
    its flag there. If ``section`` is ``None``, every command has this option.
    """

    def __init__(self, *names: str, section: Section | None = None, **attributes: Any) -> None:
        super().__init__(list(names), **attributes)
        self.section = section


class Verb(click.Command):
    """A command whose help explains its own options and the settings used most. It only names the
    flags of the other settings, in one line for each section. ``unfolded``: the names of the
    settings used most; ``None``: all are explained.
    """

    unfolded: Collection[str] | None = (
        "zookeeper",
        "kafka",
        "career",
        "id",
        "session_timeout_s",
        "handover_budget_s",
        "http",
    )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        params = self.get_params(ctx)
        takes = any(isinstance(param, click.Argument) for param in params)
        is_named = not takes and any(param.name == "career" for param in params)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as wrong:
            wrong.ctx = wrong.ctx or ctx  # click forgets it where an option lacks its value
            if not is_named or not wrong.message.startswith("Got unexpected extra argument"):
                raise
            ctx.fail(f"{wrong.message}; a career is named with --career NAME")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown, folded = self.parted(ctx)
        for heading, records in shown.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=_LEFT_COLUMN)
        if folded:
            with formatter.section("Settings (leaderq config show --help explains them)"):
                margin = " " * formatter.current_indent
                for heading, flags in folded.items():
                    lines = textwrap.wrap(
                        f"{heading}: {' '.join(flags)}",
                        formatter.width,
                        initial_indent=margin,
                        subsequent_indent=margin + "  ",
                        break_on_hyphens=False,  # as click would break them
                    )
                    formatter.write("\n".join(lines) + "\n")

    def parted(
        self, ctx: click.Context
    ) -> tuple[dict[str, list[tuple[str, str]]], dict[str, list[str]]]:
        """Return, by heading, the options that help explains, and the flags that it only names."""
        shown: dict[str, list[tuple[str, str]]] = {"Options": []}
        folded: dict[str, list[str]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is None:
                continue
            section = getattr(option, "section", None)
            heading = section.value if section else "Any command"
            if not isinstance(option, SettingOption):
                shown["Options"].append(record)
            elif self.unfolded is None:
                shown.setdefault(heading, []).append(record)
            elif option.name in self.unfolded:
                shown.setdefault("Settings most used", []).append(record)
            else:
                folded.setdefault(heading, []).append(option.opts[0])
        return shown, folded


class AllSettings(Verb):
    """A command whose help explains every setting."""

    unfolded = None


def verb(
    *takes: Section | click.Parameter,
    hidden: Collection[str] = (),
    cls: type[click.Command] = Verb,
    **attributes: Any,
) -> Callable[[Callable[[Given], object]], click.Command]:
    """Make a command of a function; the function's docstring is the help, its result the exit code.

    ``takes``: the command's own options and arguments, and the sections of settings that it takes.
    An own option replaces the setting of the same name. ``hidden``: settings that the command
    accepts, as all commands do, and does not use.
    """
    own = [each for each in takes if isinstance(each, click.Parameter)]
    rows = [row for row in TABLE if row.section in takes]
    settings = [_option(row) for row in rows if row.name not in {each.name for each in own}]
    for option in settings:
        option.hidden = option.name in hidden
    common = [_CONFIG, _DEBUG] if rows else [_DEBUG]

    def made(function: Callable[[Given], object]) -> click.Command:
        def called(config: str | None = None, **values: Any) -> object:
            flags = {row.key: values.pop(row.key) for row in rows}
            return function(Given(flags, config, **values))

        return cls(
            function.__name__.replace("_", "-"),
            params=[*own, *settings, *common],
            callback=called,
            help=inspect.getdoc(function),
            **attributes,
        )

    return made


def takes_value(argument: str) -> bool | None:
    """Whether ``argument`` is an option of a setting whose value is the next argument; ``None`` if
    it is not an option of a setting.
    """
    name, equals, _ = argument.partition("=")
    for row in TABLE:
        if row.is_switch and name in {row.flag, _off_flag(row)}:
            return False
        if not row.is_switch and name == row.flag:
            return not equals
    return {"--config": not equals, "--debug": False}.get(name)


def number(
    name: str,
    help: str,
    *,
    least: float = 1,
    most: float | None = None,
    default: float | None = None,
    metavar: str = "N",
) -> click.Option:
    """An option whose value is a finite number: a whole number if ``least`` is an ``int``, and then
    at most ``_MOST``, unless ``most`` says otherwise.
    """
    within: Any = click.FloatRange
    if isinstance(least, int):
        within, most = click.IntRange, _MOST if most is None else most
    return click.Option(
        [name],
        type=within(least, most),
        callback=_finite,
        default=default,
        metavar=metavar,
        show_default=default is not None,
        help=help,
    )


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number", ctx, param)
    from leaderq.base.arguments import MAX_S  # not needed for --help

    if isinstance(value, float) and value > MAX_S:
        raise click.BadParameter(f"{value} is more than {MAX_S:.0f}", ctx, param)
    return value


def switch(*names: str, help: str) -> click.Option:
    return click.Option(names, is_flag=True, help=help)


def pairs(name: str, dest: str, help: str) -> click.Option:
    """An option ``KEY=VALUE`` that may be given several times; its value is a mapping."""
    return click.Option(
        [name, dest], multiple=True, metavar="KEY=VALUE", callback=_as_pairs, help=help
    )


def _as_pairs(_: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, found[key] = text.partition("=")
        if not (key and equals):
            raise ConfigurationError(f"{param.opts[0]} {text!r} is not KEY=VALUE")
    return found


JSON = click.Option(
    ["--json", "as_json"],
    is_flag=True,
    envvar="LEADERQ_JSON",
    show_envvar=True,
    help="write JSON, one object a line",
)
YES = switch("--yes", help="really do it; required")
_CONFIG = SettingOption(
    "--config",
    metavar="FILE",
    help="configuration file  [env var: LEADERQ_CONFIG; default: leaderq.toml, if it is here]",
)
_DEBUG = SettingOption(
    "--debug",
    is_flag=True,
    expose_value=False,
    envvar="LEADERQ_DEBUG",
    show_envvar=True,
    help="show the traceback of an error",
)


def letters_with_error(what: str) -> click.Option:
    """The option that chooses letters by a text in their ``what``."""
    return click.Option(
        ["--error"],
        metavar="TEXT",
        callback=_not_empty,
        help=f"only letters whose {what} contains TEXT; case is ignored",
    )


def _not_empty(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    if text == "":
        raise click.BadParameter("an empty text is in each letter; leave it out", ctx, param)
    return text


def needs_yes(given: Given, what: str) -> None:
    """Refuse to destroy anything without ``--yes``. Verbs call it before they connect."""
    if not given.yes:
        raise ConfigurationError(f"{what}; give --yes if that is what you want")


def without_mark(first_line: bytes) -> bytes:
    """Return the first line of a text without the byte-order mark that some editors put there."""
    return first_line.removeprefix(codecs.BOM_UTF8)


def meant(name: str, known: Iterable[str], otherwise: str) -> str:
    """The remedy for an unknown name: the nearest known name, or ``otherwise`` if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def _off_flag(row: Row) -> str:
    return "--no-" + row.name.replace("_", "-")


def _option(row: Row) -> SettingOption:
    flag = f"{row.flag}/{_off_flag(row)}" if row.is_switch else row.flag
    metavar = None if row.is_switch else "FILE" if row.secret else row.kind.metavar
    return SettingOption(
        flag, row.key, section=row.section, default=None, metavar=metavar, help=_help(row)
    )


def _help(row: Row) -> str:
    if row.secret:
        return (
            f"file that holds the {row.help}  [env var: {row.variable}_FILE, or the secret itself"
            f" in {row.variable}]"
        )
    if row.default is None:
        return f"{row.help}  [env var: {row.variable}]"
    default = row.default
    if row.is_switch:
        default = "on" if default else "off"
    elif isinstance(default, float):
        default = f"{default:g}"
    return f"{row.help}  [env var: {row.variable}; default: {default}]"
