"""``python -m leaderq.testing.nemesis``: see :mod:`leaderq.testing.nemesis`."""

from __future__ import annotations

import logging
import random
import sys
from pathlib import Path
from typing import Any

import click

from leaderq.errors import LeaderqError
from leaderq.testing.nemesis.cluster import NemesisOptions
from leaderq.testing.nemesis.faults import run


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--minutes", default=3.0, show_default=True, help="For how long.")
@click.option("--seed", type=int, help="Repeats a schedule of faults; random by default.")
@click.option("--career", metavar="MODULE:CLASS", required=True, help="What is to suffer.")
@click.option("--session-timeout-s", default=5.0, show_default=True, help="T.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where history and logs are kept.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(seed: int | None, **given: Any) -> None:
    """Let a career suffer every fault, and check that all promises held.

    ARGUMENTS are passed on to `leaderq run`, such as --kafka. Exit codes: 0 all promises held, 1
    one was broken, 2 the nemesis could not be run.
    """
    logging.basicConfig(level=logging.ERROR)  # our own session's servers come and go
    seed = random.randrange(1 << 20) if seed is None else seed
    named = {name: value for name, value in given.items() if value is not None}
    try:
        options = NemesisOptions(seed, **named)
        click.echo(f"seed={seed} minutes={options.minutes:g} folder={options.folder}", err=True)
        report = run(options, say=lambda line: click.echo(line, err=True))
    except (LeaderqError, OSError) as error:
        click.echo(f"nemesis: error: {error}", err=True)
        sys.exit(2)
    click.echo(str(report))
    sys.exit(1 if report.violations else 0)


main()
