"""The verbs that change who leads, or how: ``step-down``, ``transfer``, ``pause``, ``resume``,
``raise-floor`` and ``forget``.
"""

from __future__ import annotations

import click

from leaderq.cli.completion import ONE_CAREER, candidates
from leaderq.cli.connecting import named_career, operator
from leaderq.cli.options import (
    CONNECTION,
    Given,
    Verb,
    needs_yes,
    takes_settings,
    timeout_option,
    yes_option,
)
from leaderq.config import Section


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION, career=ONE_CAREER)
@timeout_option
def step_down(given: Given, timeout_s: float) -> None:
    """Ask the leader to finish its unit of work and hand over; return when the next leader is
    inaugurated.

    \b
    Example:
      leaderq step-down --career ad-billing
    """
    with operator(given) as requests:
        view = requests.step_down(timeout_s=timeout_s)
    click.echo(f"{view.leader} leads {view.career}, term {view.term}", err=True)


@click.command(cls=Verb)
@click.option(
    "--to", metavar="ID", required=True, help="candidate that shall lead", shell_complete=candidates
)
@takes_settings(Section.CAREER, *CONNECTION, career=ONE_CAREER)
@timeout_option
def transfer(given: Given, to: str, timeout_s: float) -> None:
    """Ask the leader to hand over to candidate ID; return when that one is inaugurated.

    A candidate that leads already is left alone.

    \b
    Example:
      leaderq transfer --career ad-billing --to b
    """
    with operator(given) as requests:
        view = requests.transfer(to, timeout_s=timeout_s)
    click.echo(f"{view.leader} leads {view.career}, term {view.term}", err=True)


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION, career=ONE_CAREER)
def pause(given: Given) -> None:
    """Let the leader begin no new unit of work, until leaderq resume; leadership stays where it is.

    Leaders to come are paused as well.

    \b
    Example:
      leaderq pause --career ad-billing
    """
    with operator(given) as requests:
        was_paused = requests.view().paused
        view = requests.pause()
    click.echo(
        f"{view.career} is paused{' already' if was_paused else ''}; {view.leader or 'nobody'}"
        " leads",
        err=True,
    )


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION, career=ONE_CAREER)
def resume(given: Given) -> None:
    """Let the leader take up its work again after leaderq pause.

    \b
    Example:
      leaderq resume --career ad-billing
    """
    with operator(given) as requests:
        was_paused = requests.view().paused
        view = requests.resume()
    click.echo(
        f"{view.career} {'goes on' if was_paused else 'was not paused'}; {view.leader or 'nobody'}"
        " leads",
        err=True,
    )


@click.command(cls=Verb)
@click.argument("number", type=click.IntRange(min=1))
@takes_settings(Section.CAREER, *CONNECTION, career=ONE_CAREER)
def raise_floor(given: Given, number: int) -> None:
    """Number the next term of a career at least NUMBER; the present one goes on.

    For an ensemble that was rebuilt and has forgotten the terms before: resources refuse lower
    numbers than they have seen. Also repairs a term record that cannot be read, which keeps
    everybody from leading.

    \b
    Example:
      leaderq raise-floor 1200 --career ad-billing
    """
    # After leaderq forget, or on a rebuilt ensemble, nobody has stood for it.
    with operator(given, must_be_known=False) as requests:
        requests.raise_floor(number)
    click.echo(f"the next term is numbered {number} or higher", err=True)


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION, career=ONE_CAREER)
@yes_option
def forget(given: Given, yes: bool) -> None:
    """Delete all that is kept of a career, so that leaderq status shows it no more.

    Refused while a candidate stands or cools off, or a process that has waited is alive. Offsets
    kept in ZooKeeper are lost. If the career is ever run again, its terms are numbered from 1:
    where resources compare term numbers, follow it up with leaderq raise-floor.

    \b
    Example:
      leaderq forget --career ad-billing --yes
    """
    settings = given.load().settings
    career = named_career(settings)
    needs_yes(
        yes, f"this deletes all that is kept of {career!r} below {settings.root}, with its offsets"
    )
    with operator(given) as requests:
        count = requests.forget()
    click.echo(f"{career} is forgotten; {count} znodes deleted", err=True)
