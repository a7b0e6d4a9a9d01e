"""``leaderq journal``: journals of producers, looked at, repaired and sent from outside."""

from __future__ import annotations

import click

from leaderq.cli.verbs import Verbs


@click.group(
    cls=Verbs,
    package=__name__,
    verbs={
        "inspect": ("directory", "Show what is in a journal."),
        "verify": ("directory", "Read every byte, and check every record."),
        "replay": ("replay", "Write records to standard output."),
        "send": ("send", "Send to Kafka what nobody sends any more."),
        "truncate": ("directory", "Give up records, or files set aside."),
    },
)
def journal() -> None:
    """Look into journals of producers, check, read, send and repair them."""
