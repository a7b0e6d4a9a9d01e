"""``leaderq observe``: writes what monitoring begins with, alerts and a dashboard."""

from __future__ import annotations

import click

from leaderq.cli.options import Given, verb

_JOB = click.Option(
    ["--job"], default="", metavar="REGEX", help="only series of jobs that this matches"
)


@verb(_JOB)
def rules(given: Given) -> None:
    """Write alerts as a rule file for Prometheus. Each says what to look at first.

    \b
    Examples:
      leaderq observe rules > leaderq-rules.yml && promtool check rules leaderq-rules.yml
      leaderq observe rules --job billing > billing-rules.yml
    """
    from leaderq.observability.alerts import rule_file

    click.echo(rule_file(given.job), nl=False)


@verb()
def dashboard(given: Given) -> None:
    """Write a dashboard that Grafana can import; it lets you choose data source and job.

    \b
    Example:
      leaderq observe dashboard > leaderq-dashboard.json
    """
    from leaderq.observability.dashboard import dashboard as written

    click.echo(written(), nl=False)
