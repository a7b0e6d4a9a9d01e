"""``leaderq config`` and ``leaderq version``: every setting, its value and where it comes from; a
file to begin with; what runs here.
"""

from __future__ import annotations

import json
import platform

import click

from leaderq.cli.options import (
    EVERYTHING,
    AllSettings,
    Given,
    Verb,
    debug_option,
    json_option,
    takes_settings,
)
from leaderq.cli.output import write_json, write_rows
from leaderq.config.settings import TABLE, Section

_OPTIONAL = ("confluent-kafka", "prometheus-client")


@click.command(cls=AllSettings)
@takes_settings(*EVERYTHING)
@json_option
def show(given: Given, as_json: bool) -> None:
    """Show every setting with its value and source; secrets are masked.

    Sources, last wins: defaults; leaderq.toml (settings at its top, those of one career in
    [careers.NAME]); LEADERQ_* variables; options. With a mistake anywhere, all mistakes are listed
    and the exit code is 2.

    \b
    Examples:
      leaderq config show
      leaderq config show --json --career ad-billing
      leaderq config show --json | jq 'select(.source != "default")'
    """
    rows = (
        (row.name, value if as_json else _text(value), source)
        for row, value, source in given.load().rows()
    )
    write_rows(
        (dict(zip(("setting", "value", "source"), row, strict=True)) for row in rows),
        as_json=as_json,
    )


@click.command(cls=Verb)
@debug_option
def sample() -> None:
    """Write a leaderq.toml with every setting, explained, its default behind a #.

    \b
    Example:
      leaderq config sample > leaderq.toml
    """
    for section in Section:
        click.echo(f"# -- {section.value}\n")
        for row in (row for row in TABLE if row.section is section):
            click.echo(f"# {row.help}  [{row.variable}]")
            is_fixed = row.default is not None and "<" not in str(row.default)
            click.echo(
                f"#{row.key} = {json.dumps(row.default) if is_fixed else ''}".rstrip() + "\n"
            )
    click.echo("# [careers.ad-billing]                  these, for one career only")
    click.echo('# class = "billing:AdBilling"            what leaderq run --all runs')
    click.echo("# [careers.ad-billing.options]          its own, read from self.options")


def _text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else value


@click.command(cls=Verb)
@debug_option
@json_option
def version(as_json: bool) -> None:
    """Show the versions of leaderq, Python and the client libraries.

    \b
    Example:
      leaderq version --json
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed  # slow, and --help shows no versions

    found = {"leaderq": installed("leaderq"), "python": platform.python_version()}
    found |= {name: installed(name) for name in ("kazoo", "kafka-python", "click")}
    for name in _OPTIONAL:
        try:
            found[name] = installed(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    if as_json:
        write_json(found)
        return
    for name, number in found.items():
        click.echo(f"{name} {number}")
