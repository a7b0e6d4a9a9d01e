"""``leaderq doctor``: what is missing, unreachable or not as it should be."""

from __future__ import annotations

from collections.abc import Iterator

import click

from leaderq.cli import checks
from leaderq.cli.checks import Finding, Verdict
from leaderq.cli.exit_codes import exit_code
from leaderq.cli.options import CONNECTION, Given, Verb, json_option, takes_settings
from leaderq.cli.quiet import quiet
from leaderq.cli.writing import write_json
from leaderq.config import Section
from leaderq.errors import ConfigurationError
from leaderq.exits import ExitCode


@click.command(cls=Verb)
@click.option(
    "--quick",
    is_flag=True,
    envvar="LEADERQ_QUICK",
    show_envvar=True,
    help="leave out Kafka and Java: ZooKeeper and what is local",
)
@takes_settings(*CONNECTION, Section.KAFKA)
@json_option
def doctor(given: Given, quick: bool, as_json: bool) -> int:
    """Check Python, packages, configuration, ZooKeeper, Kafka and Java, and say what to do about each fault.

    Exit codes: 0 nothing failed (there may be advice), 2 configuration or credentials, 3 a server did not answer, 1 anything
    else. Nothing is left behind on any server.

    \b
    Examples:
      leaderq doctor
      leaderq doctor --quick --zookeeper zk1:2181
      leaderq doctor --json | jq -r 'select(.verdict == "failed").detail'
    """
    quiet()
    code: int = ExitCode.OK
    for finding in _findings(given, quick):
        if as_json:
            write_json({"check": finding.check, "verdict": finding.verdict.value, "detail": finding.detail})
        else:
            click.echo(f"{finding.verdict.value:<7} {finding.check:<17} {finding.detail}")
        if finding.verdict is Verdict.FAILED and code is ExitCode.OK:
            code = exit_code(finding.error) if finding.error else ExitCode.FAILED
    return code


def _findings(given: Given, quick: bool) -> Iterator[Finding]:
    yield from checks.python()
    yield from checks.packages()
    if not quick:
        yield from checks.java()
    try:
        configuration = given.load()
    except ConfigurationError as error:
        for problem in error.problems:
            yield Finding("configuration", Verdict.FAILED, problem, error)
        return
    yield from checks.configuration(configuration)
    yield from checks.zookeeper(configuration.settings)
    if not quick:
        yield from checks.kafka(configuration.settings)
