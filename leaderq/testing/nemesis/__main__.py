"""``python -m leaderq.testing.nemesis``: see :mod:`leaderq.testing.nemesis`."""

from __future__ import annotations

import logging
import random
import sys
from dataclasses import replace
from pathlib import Path

import click

from leaderq.testing.nemesis.cluster import NemesisOptions
from leaderq.testing.nemesis.faults import run


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--minutes", default=3.0, show_default=True, help="For how long.")
@click.option("--seed", type=int, default=None, help="Repeats a schedule of faults; random by default.")
@click.option("--career", default=None, metavar="MODULE:CLASS", help="Yours instead of rude ones.")
@click.option("--session-timeout-s", default=5.0, show_default=True, help="T.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where history and logs are kept.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(
    minutes: float,
    seed: int | None,
    career: str | None,
    session_timeout_s: float,
    folder: Path | None,
    arguments: tuple[str, ...],
) -> None:
    """Let a career suffer every fault, and check that it kept its promises.

    ARGUMENTS are passed on to `leaderq run`, such as --kafka. Ends with 1 if a promise was broken.
    """
    seed = random.randrange(1 << 20) if seed is None else seed
    options = NemesisOptions(seed, minutes=minutes, session_timeout_s=session_timeout_s, arguments=arguments)
    if career is not None:
        options = replace(options, career=career)
    if folder is not None:
        options = replace(options, folder=folder)
    logging.basicConfig(level=logging.ERROR)  # of our own session, whose servers come and go
    click.echo(f"seed={seed} minutes={minutes:g} folder={options.folder}", err=True)
    report = run(options, say=lambda line: click.echo(line, err=True))
    click.echo(str(report))
    sys.exit(1 if report.violations else 0)


main()
