"""The group of verbs about journals."""

from __future__ import annotations

import click

from leaderq.cli.journal.inspect import inspect
from leaderq.cli.journal.replay import replay
from leaderq.cli.journal.truncate import truncate
from leaderq.cli.journal.verify import verify
from leaderq.cli.verbs import Verbs


@click.group(cls=Verbs)
def journal() -> None:
    """Look into journals of producers, check, read and repair them."""


for _verb in (inspect, verify, replay, truncate):
    journal.add_command(_verb)
