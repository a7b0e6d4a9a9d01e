"""The group of verbs about queues."""

from __future__ import annotations

import click

from leaderq.cli.queue.dead import dead
from leaderq.cli.queue.drain import drain
from leaderq.cli.queue.ls import ls
from leaderq.cli.queue.pause import pause
from leaderq.cli.queue.peek import peek
from leaderq.cli.queue.purge import purge
from leaderq.cli.queue.put import put
from leaderq.cli.queue.requeue import requeue
from leaderq.cli.queue.resume import resume
from leaderq.cli.queue.rm import rm
from leaderq.cli.verbs import Verbs


@click.group(cls=Verbs)
def queue() -> None:
    """Look into ZooKeeper queues of any of Curator's recipes, and work on them."""


for _verb in (ls, put, peek, drain, purge, rm, dead, requeue, pause, resume):
    queue.add_command(_verb)
