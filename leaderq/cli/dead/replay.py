"""``leaderq dead replay``: letters go back to where they came from."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.completion import ONE_CAREER
from leaderq.cli.connecting import named_career
from leaderq.cli.dead.letters import (
    SECTIONS,
    as_places,
    error_option,
    letters_topic,
    origin_option,
    topic_option,
)
from leaderq.cli.options import Given, Verb, json_option, number, switch, takes_settings
from leaderq.cli.output import quiet, write_json, write_rows
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.kafka.dead_letters.replay import DeadLetterReplay, Resend


@click.command(cls=Verb)
@takes_settings(*SECTIONS, career=ONE_CAREER)
@topic_option
@error_option
@origin_option
@click.option(
    "--letter",
    "letters",
    callback=as_places,
    multiple=True,
    metavar="PARTITION:OFFSET",
    help="only this letter; may be given several times",
)
@number(
    "--rate",
    "send N letters a second at most; 0 is as fast as Kafka takes them",
    least=0.0,
    default=100.0,
)
@click.option(
    "--to", metavar="TOPIC", help="send all records to TOPIC instead of the topics they came from"
)
@switch(
    "--same-partition", help="send each record to the partition it was read from, whatever its key"
)
@switch("--from-start", help="forget what was replayed before, and begin again")
@switch("--dry-run", help="say what would be sent where, and change nothing")
@switch("--yes", help="really send; needed unless it is a dry run")
@json_option
def replay(
    given: Given,
    topic: str | None,
    error: str | None,
    origin: str | None,
    letters: frozenset[tuple[int, int]],
    rate: float,
    to: str | None,
    same_partition: bool,
    from_start: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Send the records of dead letters back to the topics they came from, once each, in the order
    of the letters.

    Key, value and headers are as they were; headers leaderq-replayed-* say which letter it was, and
    how often the record has died. A record goes to the partition that Java's and Python's producers
    choose for its key; if other producers wrote the topic (librdkafka's), give --same-partition.
    The letters stay where they are.

    Every group that reads those topics gets the records again, also those that could handle them.
    Where that is wrong, send them to a topic of their own with --to, and let the career read it
    too.

    What was replayed is kept as committed offsets of the group CAREER-dead-replay. A replay that
    was interrupted or killed is started again and goes on where it was; records and progress are
    one transaction, so no reader of committed records sees one twice. (One that reads uncommitted
    ones may see some letters again, at most those in hand.) Letters left out by --error, --origin
    or --letter remain for a later replay. If a second replay is begun, the first one ends.

    \b
    Examples:
      leaderq dead replay --career ad-billing --dry-run
      leaderq dead replay --career ad-billing --error timeout --yes
      leaderq dead replay --career ad-billing --letter 0:41 --yes
      leaderq dead replay --career ad-billing --to ad-billing-again --yes
    """
    settings = given.load().settings
    career = named_career(settings)
    if not dry_run and not yes:
        raise ConfigurationError(
            "a replay sends records to topics that careers read; see what with --dry-run, then give"
            " --yes"
        )
    quiet()
    # As Ctrl-C: what is open is aborted rather than left to the broker, and the exit code says that
    # it is not complete.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from leaderq.kafka.dead_letters.replay import DeadLetterFilter, DeadLetterReplay

    work = DeadLetterReplay(
        settings.kafka,
        letters_topic(settings, topic),
        career,
        security=settings.kafka_security,
        timeout_s=settings.connect_timeout_s,
        selection=DeadLetterFilter(error=error, origin=origin, places=letters),
        same_partition=same_partition,
        from_start=from_start,
        rate_per_s=rate,
        to=to,
    )
    with work:
        try:
            if dry_run:
                write_rows(map(_row, work.preview()), as_json=as_json)
            else:
                work.run(time.sleep)
        finally:
            _sum_up(work, dry_run, as_json)


def _row(each: Resend) -> dict[str, Any]:
    message, letter = each.message, each.letter
    return {
        "letter": letter.place,
        "to": f"{message.topic}-{message.partition}",
        "key": None if message.key is None else message.key.decode("utf-8", "backslashreplace"),
        "bytes": letter.record.size,
        "times": letter.times,
        "error": letter.error,
    }


def _sum_up(work: DeadLetterReplay, dry_run: bool, as_json: bool) -> None:
    """The last line; also of a replay that was interrupted."""
    counts = work.counts
    about = "up to " if counts.unseen or counts.held else ""
    if as_json and not dry_run:
        write_json(
            {
                "replayed": counts.sent,
                "skipped": counts.foreign,
                "left_out": counts.left,
                "remain": counts.remain,
            }
        )
    verb = "would be replayed" if dry_run else "replayed"
    click.echo(
        f"{counts.sent} {verb}; {counts.foreign} skipped, being no letters of leaderq;"
        f" {about}{counts.remain} remain"
        + (f", {counts.left} of them left out by what was asked for" if counts.left else ""),
        err=True,
    )
