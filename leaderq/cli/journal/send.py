"""``leaderq journal send``: what a journal holds and nobody sends any more goes to Kafka."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.journal.directory import directory_argument, readable
from leaderq.cli.options import Given, Verb, json_option, number, switch, takes_settings
from leaderq.cli.output import write_json
from leaderq.clock import now_s
from leaderq.config import Section
from leaderq.errors import ConfigurationError, CorruptRecord, LeaderqError, SinkAway, SinkBroken

if TYPE_CHECKING:
    from leaderq.producing import Sink
    from leaderq.producing.journal import Journal, JournalRecord

_SINK_S = 10.0
_PAUSE_S = 0.2


@click.command(cls=Verb)
@takes_settings(Section.KAFKA)
@click.option("--topic", metavar="TOPIC", help="where records go that name no topic themselves")
@click.option(
    "--client",
    type=click.Choice(["kafka-python", "confluent"]),
    default="kafka-python",
    show_default=True,
    help="client library",
)
@switch("--raw", help="send each record's bytes as the value, whatever they are")
@number(
    "--away-s",
    "give up once Kafka has taken nothing for so long",
    least=0.1,
    default=60.0,
    metavar="SECONDS",
)
@directory_argument
@json_option
def send(
    given: Given,
    topic: str | None,
    client: str,
    raw: bool,
    away_s: float,
    directory: Path,
    as_json: bool,
) -> None:
    """Send the records of the journal in DIR that Kafka has not confirmed, in their order, as the
    BufferedProducer with a KafkaSink that wrote them would.

    For a host whose program will not start again. Each record is acknowledged in the journal when
    Kafka has confirmed it, so run it again if it was interrupted: it goes on where it was, and what
    was under way may arrive twice. Refused while a process has the journal open.

    A record that is not one for Kafka ends it: nothing is given up. That is so for requests which a
    process step of the program makes records of, or that a codec of its own has written: only that
    program can send these. What has expired is not sent, and what is damaged cannot be; both are
    counted.

    \b
    Examples:
      leaderq journal replay /var/lib/collector/journal --decode | head
      leaderq journal send /var/lib/collector/journal --kafka kafka:9092 --topic clicks
    """
    # As Ctrl-C: what is confirmed is noted in the journal, and the exit code tells.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = given.load().settings
    from leaderq.kafka.sink import KafkaSink
    from leaderq.producing.codec import PLAIN
    from leaderq.producing.journal import Journal
    from leaderq.producing.journal.inspection import look

    with readable(directory):
        look(directory)  # refuses to make a journal where there is none
    sink = KafkaSink(
        settings.kafka,
        topic,
        client=client,
        security=settings.kafka_security,
        open_timeout_s=settings.connect_timeout_s,
    )
    with Journal(directory) as journal:
        work = JournalSending(journal, sink, bytes if raw else PLAIN.deserialize, away_s)
        try:
            work.run()
        finally:
            sink.close(_PAUSE_S)
            _sum_up(work, journal, as_json)


def _sum_up(work: JournalSending, journal: Journal, as_json: bool) -> None:
    found = {
        "sent": work.sent,
        "expired": work.expired,
        "damaged": journal.counters.corrupt,
        "left": journal.depth,
    }
    if as_json:
        write_json(found)
    counts = ", ".join(f"{count} {what}" for what, count in found.items())
    click.echo(f"records: {counts}", err=True)


class JournalSending:
    """Sends what a journal holds, batch after batch; what was not confirmed of one goes first."""

    def __init__(
        self,
        journal: Journal,
        sink: Sink,
        decode: Callable[[bytes], Any],
        away_s: float,
    ) -> None:
        self._journal, self._sink, self._decode = journal, sink, decode
        self._away_s = away_s
        self.sent = self.expired = 0

    def run(self) -> None:
        """Return when nothing is left.

        :raises ConfigurationError: a record is not one for Kafka. SinkAway, SinkBroken: Kafka does
            not take them.
        """
        after_id = 0
        while records := self._journal.read(after_id):
            after_id = records[-1].id
            left, fault = self._decoded(records)
            heard_s = now_s()
            while left:
                rest = self._given(left)
                if len(rest) == len(left):
                    if now_s() > heard_s + self._away_s:
                        raise SinkAway(f"Kafka has taken nothing for {self._away_s:g} s")
                    time.sleep(_PAUSE_S)
                else:
                    heard_s = now_s()
                left = rest
            if fault is not None:
                raise fault

    def _decoded(
        self, records: Sequence[JournalRecord]
    ) -> tuple[list[tuple[int, Any]], LeaderqError | None]:
        found: list[tuple[int, Any]] = []
        for record in records:
            if record.expires_at is not None and record.expires_at <= time.time():
                self.expired += self._journal.ack(record.id)
                continue
            try:
                found.append((record.id, self._decode(record.payload)))
            except CorruptRecord as exc:
                return found, _not_for_kafka(record.id, exc)
        return found, None

    def _given(self, batch: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Give a batch to the sink once; return what is still to be sent of it."""
        try:
            outcome = self._sink.send([request for _, request in batch], _SINK_S)
        except SinkAway:
            return batch
        again = set(outcome.again)
        confirmed = [
            number
            for at, (number, _) in enumerate(batch)
            if at not in again and at not in outcome.refused
        ]
        self._journal.ack_many(confirmed)
        self.sent += len(confirmed)
        if isinstance(outcome.error, SinkBroken):
            raise outcome.error
        for at, error in sorted(outcome.refused.items()):
            raise _not_for_kafka(batch[at][0], error) from error
        return [batch[at] for at in sorted(again)]


def _not_for_kafka(number: int, error: BaseException) -> ConfigurationError:
    return ConfigurationError(
        f"record id={number} cannot be sent, and is not given up: {error}. Only the program "
        f"that wrote it can; or give --raw; or give it up: leaderq journal truncate --to {number}"
    )
