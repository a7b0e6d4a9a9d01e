"""``leaderq version``: the version of leaderq, and of what it runs on."""

from __future__ import annotations

import platform

import click

from leaderq.cli.options import Verb, debug_option, json_option
from leaderq.cli.writing import write_json


@click.command(cls=Verb)
@debug_option
@json_option
def version(as_json: bool) -> None:
    """Show the versions of leaderq, Python and the client libraries.

    \b
    Example:
      leaderq version --json
    """
    from importlib.metadata import version as installed  # slow, and --help shows no versions

    found = {"leaderq": installed("leaderq"), "python": platform.python_version()}
    found |= {name: installed(name) for name in ("kazoo", "kafka-python", "click")}
    if as_json:
        write_json(found)
        return
    for name, number in found.items():
        click.echo(f"{name} {number}")
