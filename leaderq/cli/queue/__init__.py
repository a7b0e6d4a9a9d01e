"""``leaderq queue``: looking into ZooKeeper queues, Curator's and Dyno's, and working on them."""

from __future__ import annotations

import click

from leaderq.cli.verbs import Verbs


@click.group(
    cls=Verbs,
    package=__name__,
    verbs={
        "ls": ("items", "Show queues: depth, consumers, dead letters."),
        "put": ("put", "Put items from arguments or standard input."),
        "peek": ("items", "Show items, without taking them."),
        "stats": ("items", "Show a Dyno queue shard by shard."),
        "ack": ("items", "Remove messages from a Dyno queue as done."),
        "drain": ("drain", "Write items to standard output, and take them out."),
        "purge": ("items", "Delete all items."),
        "rm": ("items", "Delete queues with everything beside them."),
        "dead": ("letters", "Show dead letters, or delete them."),
        "requeue": ("letters", "Send dead letters back."),
        "pause": ("items", "Let consumers begin no new item."),
        "resume": ("items", "End a pause."),
    },
)
def queue() -> None:
    """Look into ZooKeeper queues, of Curator's recipes and of leaderq.dyno, and work on them."""
