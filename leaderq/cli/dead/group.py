"""The group of verbs about dead letters."""

from __future__ import annotations

import click

from leaderq.cli.dead.ls import ls
from leaderq.cli.dead.replay import replay
from leaderq.cli.dead.show import show
from leaderq.cli.verbs import Verbs


@click.group(cls=Verbs)
def dead() -> None:
    """Look at records that were set aside as dead letters, and send them back."""


for _verb in (ls, show, replay):
    dead.add_command(_verb)
