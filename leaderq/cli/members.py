"""``leaderq members``: the candidates of a career in the order of their turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.career_lookup import views
from leaderq.cli.connecting import open_session
from leaderq.cli.options import CONNECTION, Given, Verb, json_option, takes_settings
from leaderq.cli.quiet import quiet
from leaderq.cli.writing import write_json, write_table
from leaderq.config import Section

if TYPE_CHECKING:
    from leaderq.election import View


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION)
@json_option
def members(given: Given, as_json: bool) -> None:
    """List candidates in the order of their turns: of one career with --career, else of all.

    \b
    Examples:
      leaderq members --career ad-billing
      leaderq members --json | jq -r 'select(.role == "next").candidate'
    """
    settings = given.load().settings
    quiet()
    with open_session(settings) as session:
        found = [member for view in views(session, settings) for member in _members(view)]
    if as_json:
        for member in found:
            write_json(member)
    elif found:
        write_table(("CAREER", "TURN", "CANDIDATE", "ROLE"), [tuple(member.values()) for member in found])
    else:
        click.echo(f"no candidate stands for {settings.career or 'any career'} below {settings.root}", err=True)


def _members(view: View) -> list[dict[str, Any]]:
    next_turn = 1 if view.leader else 0
    roles = {0: "leader", next_turn: "next"}
    return [
        {"career": view.career, "turn": turn + 1, "candidate": candidate, "role": roles.get(turn, "waiting")}
        for turn, candidate in enumerate(view.candidates)
    ]
