"""``leaderq dead``: the letters about records that could not be handled."""

from __future__ import annotations

import click

from leaderq.cli.verbs import Verbs


@click.group(
    cls=Verbs,
    package=__name__,
    verbs={
        "ls": ("letters", "List the letters there are."),
        "show": ("letters", "Show one letter, whole."),
        "replay": ("replay", "Send records back to where they came from."),
    },
)
def dead() -> None:
    """Look at records that were set aside as dead letters, and send them back."""
