"""``leaderq config``, ``version`` and ``completion``: show every setting, its value and its source;
write a configuration file to begin with, and its schema; show versions; write the script that makes
a shell complete words.
"""

from __future__ import annotations

import json
import platform

import click

from leaderq.career import career_name
from leaderq.cli.career_loading import find_career
from leaderq.cli.options import JSON, AllSettings, Given, verb
from leaderq.cli.output import write_json, write_rows
from leaderq.config import current_folder
from leaderq.config.settings import TABLE, Section
from leaderq.errors import ConfigurationError

_OPTIONAL = ("confluent-kafka", "prometheus-client")


@verb(JSON, *Section, cls=AllSettings)
def show(given: Given) -> None:
    """Show every setting with its value and source; secrets are masked.

    If several sources set a value, the last of these wins: defaults; leaderq.toml (settings at its
    top, then those of one career in [careers.NAME]); LEADERQ_* variables; options. If anything is
    wrong, every mistake is listed and the exit code is 2.

    \b
    Examples:
      leaderq config show --career ad-billing
      leaderq config show --json | jq 'select(.source != "default")'
    """
    rows = (
        {"setting": row.name, "value": value if given.as_json else _text(value), "source": source}
        for row, value, source in given.load().rows()
    )
    write_rows(rows, given.as_json)


@verb()
def sample(given: Given) -> None:
    """Write a sample of leaderq.toml: every setting with its explanation; a # stands before its
    default.

    \b
    Example:
      leaderq config sample > leaderq.toml
    """
    for section in Section:
        click.echo(f"# -- {section.value}\n")
        for row in (row for row in TABLE if row.section is section):
            is_fixed = row.default is not None and "<" not in str(row.default)
            assignment = f"#{row.key} = {json.dumps(row.default) if is_fixed else ''}".rstrip()
            click.echo(f"# {row.help}  [{row.variable}]\n{assignment}\n")
    click.echo("# [careers.ad-billing]                  these, for one career only")
    click.echo('# class = "billing:AdBilling"            what leaderq run --all runs')
    click.echo("# [careers.ad-billing.options]          its own: self.options; LEADERQ_OPTIONS_*")


@verb(click.Argument(["targets"], metavar="MODULE:CLASS...", nargs=-1))
def schema(given: Given) -> None:
    """Write a JSON schema with which editors complete and check leaderq.toml. It includes the
    options of the careers that are named, if they have a class Options.

    Editors with Taplo (such as Even Better TOML) use the schema if the line #:schema
    ./leaderq.schema.json is at the top of leaderq.toml.

    \b
    Example:
      leaderq config schema billing:AdBilling > leaderq.schema.json
    """
    from leaderq.config.schema import schema as made

    classes = [find_career(target, current_folder()) for target in given.targets]
    options = {career_name(one): getattr(one, "Options", None) for one in classes}
    click.echo(json.dumps(made(options), indent=1, default=str))


def _text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else value


@verb(JSON)
def version(given: Given) -> None:
    """Show the versions of leaderq, Python and the client libraries.

    \b
    Example:
      leaderq version --json
    """
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed  # slow, and --help shows no versions

    found = {"leaderq": installed("leaderq"), "python": platform.python_version()}
    for name in ("kazoo", "kafka-python", "click", *_OPTIONAL):
        try:
            found[name] = installed(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    if given.as_json:
        write_json(found)
        return
    for name, number in found.items():
        click.echo(f"{name} {number}")


@verb(click.Argument(["shell"], type=click.Choice(["bash", "zsh", "fish"])))
def completion(given: Given) -> None:
    """Write the script that makes SHELL complete verbs, options, careers, candidates and queues.

    To switch it on, put the line for your shell into its start file and open a new shell:

    \b
      bash, in ~/.bashrc:                   eval "$(leaderq completion bash)"
      zsh, in ~/.zshrc (after compinit):    eval "$(leaderq completion zsh)"
      fish, in ~/.config/fish/config.fish:  leaderq completion fish | source

    Careers, candidates and queues are looked up in ZooKeeper, with the settings typed so far.

    \b
    Example:
      leaderq completion bash >> ~/.bash_completion
    """
    from click.shell_completion import get_completion_class

    from leaderq.cli.verbs import leaderq

    kind = get_completion_class(given.shell)
    if kind is None:
        raise ConfigurationError(f"click cannot complete in {given.shell}")
    click.echo(kind(leaderq, {}, "leaderq", "_LEADERQ_COMPLETE").source())
