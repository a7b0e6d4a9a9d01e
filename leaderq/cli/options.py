"""Command line options made from the table of settings, so that no setting is described twice.

Click is told neither defaults nor variables of settings: the resolver alone decides who wins, and
knows where a value came from.
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leaderq.config.settings import TABLE, Row, Section
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.config import Configuration

F = TypeVar("F", bound=Callable[..., Any])

CONNECTION = (Section.CONNECTION, Section.ZOOKEEPER_SECURITY)
EVERYTHING = tuple(Section)
_LEFT_COLUMN = 30  # leaves room for the longest name of a variable in 80 columns


@dataclass(frozen=True)
class Given:
    """What the command line said about settings; absent ones are ``None``."""

    flags: Mapping[str, Any]
    config: str | None

    def load(self, *, career: str | None = None) -> Configuration:
        """All settings, resolved; ``career`` is the class's own name where one is run."""
        from leaderq.config import load  # not needed for --help

        return load(self.flags, config=self.config, career=career)


class SettingOption(click.Option):
    """An option that help shows under the heading of its section, or folded into one line with it;
    ``None``: what every command takes.
    """

    def __init__(self, *names: str, section: Section | None, **attributes: Any) -> None:
        super().__init__(list(names), **attributes)
        self.section = section


class Verb(click.Command):
    """A command whose help shows its own options first, and how to reach servers on one line for
    each section.
    """

    unfolded: tuple[Section | None, ...] = (
        Section.CAREER,
        Section.CANDIDATE,
        Section.TERM,
        Section.PROCESS,
    )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of help."""
        shown: dict[str, list[tuple[str, str]]] = {"Options": []}
        folded: dict[str, list[str]] = {}
        for option in self.get_params(ctx):
            if (
                not isinstance(option, click.Option)
                or (record := option.get_help_record(ctx)) is None
            ):
                continue
            section = option.section if isinstance(option, SettingOption) else None
            if not isinstance(option, SettingOption):
                shown["Options"].append(record)
                continue
            heading = section.value if section else "Any command"
            if section in self.unfolded:
                shown.setdefault(heading, []).append(record)
            else:
                folded.setdefault(heading, []).append(option.opts[0])
        for heading, records in shown.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=_LEFT_COLUMN)
        if folded:
            with formatter.section("Settings (leaderq config show --help explains them)"):
                for heading, flags in folded.items():
                    _write_flags(formatter, heading, flags)


def _write_flags(formatter: click.HelpFormatter, heading: str, flags: Sequence[str]) -> None:
    """Flags are not broken at their hyphens, as click would."""
    margin = " " * formatter.current_indent
    lines = textwrap.wrap(
        f"{heading}: {' '.join(flags)}",
        formatter.width,
        initial_indent=margin,
        subsequent_indent=margin + "  ",
        break_on_hyphens=False,
    )
    formatter.write("\n".join(lines) + "\n")


class AllSettings(Verb):
    """A command whose help explains every setting."""

    unfolded = (*Section, None)


def takes_settings(
    *sections: Section, career: click.Option | None = None, hidden: Collection[str] = ()
) -> Callable[[F], F]:
    """Give a command the options of ``sections``, ``--config`` and ``--debug``; it is called with a
    :class:`Given` first. ``career``: its own ``--career``, instead of the table's. ``hidden``:
    settings that are accepted, as by all commands, and mean nothing to this one.
    """
    rows = [row for row in TABLE if row.section in sections]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(config: str | None, **options: Any) -> Any:
            flags = {row.key: options.pop(row.key) for row in rows if row.key in options}
            return function(Given(flags, config), **options)

        decorated = debug_option(_config_option(wrapper))
        known: list[click.Parameter] = decorated.__click_params__
        # Click keeps parameters in the order of decorators, that is upside down.
        settings = [_option(row) for row in rows if career is None or row.name != "career"]
        for option in settings:
            option.hidden = option.name in hidden
        known[:0] = reversed(settings)
        if career is not None:
            known.append(career)
        result: F = decorated
        return result

    return decorate


def takes_value(argument: str) -> bool | None:
    """Whether ``argument`` is an option of settings whose value is the next argument; ``None`` if
    it is not such an option.
    """
    name, equals, _ = argument.partition("=")
    for row in TABLE:
        if row.is_switch and name in {row.flag, _off_flag(row)}:
            return False
        if not row.is_switch and name == row.flag:
            return not equals
    return {"--config": not equals, "--debug": False}.get(name)


def json_option(function: F) -> F:
    """``--json``, for verbs that read."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        envvar="LEADERQ_JSON",
        show_envvar=True,
        help="write JSON, one object a line",
    )(function)


def number(
    name: str,
    help: str,
    *,
    least: float = 1,
    most: float | None = None,
    default: float | None = None,
    metavar: str = "N",
) -> Callable[[F], F]:
    """An option with a number, a whole one if ``least`` is one."""
    within: Any = click.IntRange if isinstance(least, int) else click.FloatRange
    shown = default is not None
    return click.option(
        name,
        type=within(least, most),
        default=default,
        metavar=metavar,
        show_default=shown,
        help=help,
    )


timeout_option: Callable[[F], F] = number(
    "--timeout-s",
    "how long to wait until the next leader is inaugurated",
    least=0.1,
    most=86400.0,
    default=60.0,
    metavar="SECONDS",
)
"""For verbs that wait for leadership to change."""


def switch(name: str, *names: str, help: str) -> Callable[[F], F]:
    """An option without a value."""
    return click.option(name, *names, is_flag=True, help=help)


yes_option: Callable[[F], F] = switch("--yes", help="really do it; required")


def needs_yes(yes: bool, what: str) -> None:
    """Refuse to destroy anything that was not meant; before there is a connection."""
    if not yes:
        raise ConfigurationError(f"{what}; give --yes if that is what you want")


def _config_option(function: Any) -> Any:
    return click.option(
        "--config",
        cls=_AnyCommand,
        metavar="FILE",
        help=(
            "configuration file  [env var: LEADERQ_CONFIG; default: leaderq.toml, if there is one"
            " here]"
        ),
    )(function)


def debug_option(function: Any) -> Any:
    """``--debug``."""
    return click.option(
        "--debug",
        cls=_AnyCommand,
        is_flag=True,
        expose_value=False,
        envvar="LEADERQ_DEBUG",
        show_envvar=True,
        help="show the traceback of an error",
    )(function)


class _AnyCommand(SettingOption):
    def __init__(self, names: Sequence[str], **attributes: Any) -> None:
        super().__init__(*names, section=None, **attributes)


def _off_flag(row: Row) -> str:
    return "--no-" + row.name.replace("_", "-")


def _option(row: Row) -> SettingOption:
    if row.is_switch:
        names, metavar = [f"{row.flag}/{_off_flag(row)}"], None
    else:
        names, metavar = [row.flag], "FILE" if row.secret else row.kind.metavar
    return SettingOption(
        *names, row.key, section=row.section, default=None, metavar=metavar, help=_help(row)
    )


def _help(row: Row) -> str:
    if row.secret:
        return (
            f"file that holds the {row.help}  [env var: {row.variable}_FILE, or the secret itself"
            f" in {row.variable}]"
        )
    if row.default is None:
        return f"{row.help}  [env var: {row.variable}]"
    default = (
        ("on" if row.default else "off")
        if row.is_switch
        else f"{row.default:g}"
        if isinstance(row.default, float)
        else row.default
    )
    return f"{row.help}  [env var: {row.variable}; default: {default}]"
