"""``leaderq journal``: shows, checks and writes out what is in a journal, sends it to Kafka if its
program is dead, or discards it.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click

from leaderq.base import clock
from leaderq.base.exits import ExitCode
from leaderq.cli.options import JSON, YES, Given, needs_yes, number, switch, verb
from leaderq.cli.output import conclude, json_value, require_output, say, write_json, write_rows
from leaderq.cli.signals import Stopping
from leaderq.config import Section
from leaderq.errors import ConfigurationError, CorruptRecord, LeaderqError, SinkAway, SinkBroken
from leaderq.producing import Sink
from leaderq.producing.codec import PLAIN
from leaderq.producing.journal import Damage, Journal, JournalRecord
from leaderq.producing.journal.inspection import JournalView, entries
from leaderq.producing.journal.segments import Segment

_DIRECTORY = click.Argument(["directory"], metavar="DIR", type=click.Path(path_type=Path))
_SET_ASIDE = "set aside"
_LAST_ID = 2**63 - 1
_SINK_S = 10.0
_PAUSE_S = 0.2


@contextmanager
def _readable(directory: Path) -> Iterator[None]:
    """Within this block, an ``OSError`` becomes an error that says which directory cannot be read,
    and why.

    :raises ConfigurationError: the directory cannot be read.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise ConfigurationError(f"journal {str(directory)!r} cannot be read: {exc}") from exc


# -- looking ---------------------------------------------------------------------------------------


@verb(_DIRECTORY, JSON)
def inspect(given: Given) -> None:
    """Show the segments of the journal in DIR: which records they hold, how many of these are
    acknowledged, and what is set aside.

    Changes nothing; may be used while a process has the journal open. Records acknowledged in the
    last half second may still be shown as waiting. The records are not checked; leaderq journal
    verify checks them. --json writes one object for the journal, then one for each segment, for
    each file set aside, and for each damage.

    \b
    Examples:
      leaderq journal inspect /var/lib/clicks/journal --json | jq 'select(.what == "journal")'
    """
    with _readable(given.directory):
        view = JournalView(given.directory)
    _write_whole(view, given.as_json)
    names = ("file", "first_id", "last_id", "records", "acknowledged", "bytes", "state")
    rows: list[Sequence[Any]] = [
        (
            each.path.name,
            each.first_id,
            each.last_id if each.records else None,
            each.records,
            each.records - each.open_records,
            each.file_bytes,
            _state(each, is_current=each is view.current),
        )
        for each in view.segments
    ]
    rows += [
        (path.name, None, None, None, None, path.stat().st_size, _SET_ASIDE) for path in view.bad
    ]
    write_rows(
        rows,
        given.as_json,
        said=lambda row: {
            "what": _SET_ASIDE if row[-1] == _SET_ASIDE else "segment",
            **dict(zip(names, row, strict=True)),
        },
        columns=[name.replace("_", " ").upper() for name in names],
        row=lambda row: row,
    )
    _write_damages(view.damages, as_json=given.as_json, as_error=True)


def _write_whole(view: JournalView, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "what": "journal",
                "directory": str(view.directory),
                "open": view.is_open,
                "clean": view.cursor.clean,
                "waiting": view.depth,
                "bytes": view.bytes_used,
                "next_id": view.next_id,
                "cursor_slots_bad": view.bad_slots,
            }
        )
        return
    closed = "closed" if view.cursor.clean else "not open, and was not closed properly"
    state = "open in a process" if view.is_open else closed
    size = f"{view.bytes_used} bytes of {len(view.segments)} segments"
    click.echo(f"{view.depth} records wait, in {size}; the next id is {view.next_id}; {state}")


def _state(segment: Segment, *, is_current: bool) -> str:
    if segment.damages:
        return "damaged"
    return "written to" if is_current else "complete"


@verb(_DIRECTORY, JSON)
def verify(given: Given) -> ExitCode:
    """Read every byte of the journal in DIR and check every record. The exit code is 1 if anything
    is damaged or missing.

    Changes nothing; may be used while a process has the journal open. Files that were set aside
    (.bad) do not count as damage. --json writes one object for each damaged place, then one for the
    journal.

    \b
    Examples:
      leaderq journal verify /var/lib/clicks/journal --json | jq 'select(.what == "damage")'
    """
    with _readable(given.directory):
        view = JournalView(given.directory, thorough=True)
    _write_damages(view.damages, as_json=given.as_json, as_error=False)
    records, bad_slots = sum(segment.records for segment in view.segments), view.bad_slots
    slots = f"; {bad_slots} of 2 cursor slots cannot be read" if bad_slots else ""
    verdict = f"{len(view.damages)} damages" if view.damages else "sound"
    conclude(
        f"{verdict}: {records} records in {view.bytes_used} bytes{slots}",
        given.as_json,
        what="journal",
        directory=str(given.directory),
        sound=not view.damages,
        records=records,
        lost=sum(damage.lost for damage in view.damages),
        bytes=view.bytes_used,
        set_aside=len(view.bad),
        cursor_slots_bad=bad_slots,
    )
    return ExitCode.FAILED if view.damages else ExitCode.OK


def _write_damages(damages: Sequence[Damage], *, as_json: bool, as_error: bool) -> None:
    for one in damages:
        place = {"offset": one.offset, "bytes": one.size, "lost_ids": one.lost_ids}
        if as_json:
            write_json({"what": "damage", "file": one.file, "reason": one.reason, **place})
            continue
        ids = one.lost_ids
        lost = f"; records {ids[0]} to {ids[1]} are lost" if ids else ""
        line = f"{one.file}: {one.reason} ({one.size} bytes at {one.offset}){lost}"
        click.echo(line, err=as_error)


# -- records leave a journal -----------------------------------------------------------------------


@verb(
    _DIRECTORY,
    number(
        "--after", "only records after this id", least=0, most=_LAST_ID, default=0, metavar="ID"
    ),
    number("--limit", "N records at most"),
    switch("--all", "everything", help="also records that are acknowledged and not yet deleted"),
    switch("--bad", help="also what can be read of the files set aside (.bad)"),
    switch("--decode", help="write each request that a BufferedProducer put there, as JSON"),
    JSON,
)
def replay(given: Given) -> None:
    """Write to standard output the records of the journal in DIR that are not acknowledged, one a
    line and in their order.

    Changes nothing, acknowledges nothing; may be used while a process has the journal open.
    Unreadable records are left out; leaderq journal verify names them. --json writes id, times and
    payload (base64). --decode writes the requests of a BufferedProducer that has no codec of its
    own: bytes as text, or as an object with base64.

    \b
    Examples:
      leaderq journal replay /var/lib/collector/journal --decode | jq '.[0]'
      leaderq journal replay /var/lib/collector/journal --bad --after 1000 --json
    """
    require_output()
    out, count = sys.stdout.buffer, 0
    try:
        for entry in _records(given):
            out.write(_line(entry, decode=given.decode, as_json=given.as_json) + b"\n")
            count += 1
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as exc:
        raise LeaderqError(f"standard output cannot be written: {exc}") from exc
    say(f"{count} records written")


def _records(given: Given) -> Iterator[JournalRecord]:
    which: Any = {"after_id": given.after, "done_too": given.everything, "bad_too": given.bad}
    with _readable(given.directory):
        yield from islice(entries(given.directory, **which), given.limit)


def _line(entry: JournalRecord, *, decode: bool, as_json: bool) -> bytes:
    if not (decode or as_json):
        return entry.payload
    found = {"id": entry.id, "appended_at": entry.appended_at, "expires_at": entry.expires_at}
    if not decode:
        return json.dumps({**found, "payload": base64.b64encode(entry.payload).decode()}).encode()
    try:
        request = _plain(PLAIN.deserialize(entry.payload))
    except CorruptRecord as exc:
        raise ConfigurationError(
            f"record id={entry.id} cannot be decoded, since no BufferedProducer wrote it, or one"
            f" with a codec of its own: {exc}"
        ) from exc
    return json.dumps({**found, "request": request} if as_json else request).encode()


def _plain(value: Any) -> Any:
    """A plain value for JSON."""
    if isinstance(value, bytes):
        return json_value(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(_plain(key)): _plain(one)
            for key, one in value.items()
        }
    return value


@verb(
    _DIRECTORY,
    click.Option(
        ["--to", "to_id"],
        type=click.IntRange(min=1),
        metavar="ID",
        help="discard the records up to this id",
    ),
    switch("--all", "everything", help="discard all records"),
    switch("--bad", help="delete the files set aside (.bad)"),
    YES,
    JSON,
)
def truncate(given: Given) -> None:
    """Discard the oldest records of the journal in DIR as if they had been acknowledged, or delete
    the files set aside, except those that this command itself has to set aside.

    Refused while a process has the journal open. Later records continue the ids. To keep the
    records, write them out with leaderq journal replay first.

    \b
    Examples:
      leaderq journal truncate /var/lib/clicks/journal --to 120000 --yes
      leaderq journal truncate /var/lib/clicks/journal --bad --yes
    """
    directory, to_id, are_records = given.directory, given.to_id, given.to_id or given.everything
    if not (are_records or given.bad) or (to_id and given.everything):
        raise ConfigurationError(
            "say what to discard: --to ID or --all for records, --bad for files set aside"
        )
    needs_yes(given, f"this discards {'records' if are_records else 'files'} in {str(directory)!r}")
    with _readable(directory):
        # It refuses to make a journal where there is none. What opening sets aside was shown to
        # nobody, and is not deleted.
        view = JournalView(directory)
        bad = view.bad if given.bad else []
        with Journal(directory) as journal:
            given_up = journal.ack_to(to_id or journal.next_id - 1) if are_records else 0
            left = journal.depth
            for path in bad:
                path.unlink()
    conclude(
        f"{given_up} records discarded, {left} left; {len(bad)} files deleted",
        given.as_json,
        given_up=given_up,
        left=left,
        files_deleted=len(bad),
    )


# -- records go to Kafka ---------------------------------------------------------------------------


@verb(
    click.Option(["--topic"], metavar="TOPIC", help="where records go that name no topic"),
    click.Option(
        ["--client"],
        type=click.Choice(["kafka-python", "confluent"]),
        default="kafka-python",
        show_default=True,
        help="client library",
    ),
    switch("--raw", help="send each record's bytes as the value, whatever they are"),
    number(
        "--away-s",
        "give up once Kafka has taken nothing for this long",
        least=0.1,
        default=60.0,
        metavar="SECONDS",
    ),
    _DIRECTORY,
    JSON,
    Section.KAFKA,
)
def send(given: Given) -> None:
    """Send the records of the journal in DIR that Kafka has not confirmed, in their order, as their
    BufferedProducer with a KafkaSink would.

    Use this on a host whose program will not start again. Each record is acknowledged in the
    journal when Kafka has confirmed it. Ctrl-C or SIGTERM stops it after the present batch, a
    second signal at once. Run it again then: it continues where it stopped. Records that Kafka had
    not confirmed when it was stopped or killed may arrive twice. Refused while a process has the
    journal open.

    It stops at a record that is not one for Kafka, and keeps it. Only the program itself can send
    requests that its own codec has written. Expired records are not sent, and damaged ones cannot
    be; both are counted.

    \b
    Examples:
      leaderq journal replay /var/lib/collector/journal --decode | head
      leaderq journal send /var/lib/collector/journal --kafka kafka:9092 --topic clicks
    """
    settings = given.settings
    from leaderq.kafka.sink import KafkaSink  # imports the Kafka client, which --help should not

    with _readable(given.directory):
        JournalView(given.directory)  # refuses to make a journal where there is none
    sink = KafkaSink(
        settings.kafka,
        given.topic,
        client=given.client,
        security=settings.kafka_security,
        open_timeout_s=settings.connect_timeout_s,
    )
    with Journal(given.directory) as journal, Stopping() as stopping:
        decode = bytes if given.raw else PLAIN.deserialize
        work = JournalSending(journal, sink, decode, given.away_s, stopping)
        try:
            work.run()
        finally:
            sink.close(_PAUSE_S)
            found = {
                "sent": work.sent,
                "expired": work.expired,
                "damaged": journal.counters.corrupt,
                "left": journal.depth,
            }
            counts = ", ".join(f"{count} {what}" for what, count in found.items())
            conclude(f"records: {counts}", given.as_json, **found)


class JournalSending:
    """Sends the records of a journal, batch after batch. What Kafka has not confirmed is sent again
    before the next batch.
    """

    def __init__(
        self,
        journal: Journal,
        sink: Sink,
        decode: Callable[[bytes], Any],
        away_s: float,
        stopping: Stopping,
    ) -> None:
        self._journal, self._sink, self._decode = journal, sink, decode
        self._away_s, self._stopping = away_s, stopping
        self.sent = self.expired = 0

    def run(self) -> None:
        """Send until the journal has no further records.

        :raises ConfigurationError: a record is not one for Kafka.
        :raises SinkAway: Kafka has taken nothing for ``away_s``.
        :raises SinkBroken: the sink cannot go on.
        :raises KeyboardInterrupt: a signal came.
        """
        after_id = 0
        while records := self._journal.read(after_id):
            after_id = records[-1].id
            left, fault = self._decoded(records)
            heard_s = clock.now_s()
            while left:
                self._stopping.check()
                rest = self._given(left)
                if len(rest) == len(left):
                    if clock.now_s() > heard_s + self._away_s:
                        raise SinkAway(f"Kafka has taken nothing for {self._away_s:g} s")
                    with self._stopping.safely():
                        clock.sleep(_PAUSE_S)
                else:
                    heard_s = clock.now_s()
                left = rest
            if fault is not None:
                raise fault

    def _decoded(
        self, records: Sequence[JournalRecord]
    ) -> tuple[list[tuple[int, Any]], LeaderqError | None]:
        found: list[tuple[int, Any]] = []
        for record in records:
            if record.expires_at is not None and record.expires_at <= clock.calendar_s():
                self.expired += self._journal.ack(record.id)
                continue
            try:
                found.append((record.id, self._decode(record.payload)))
            except CorruptRecord as exc:
                return found, _not_for_kafka(record.id, exc)
        return found, None

    def _given(self, batch: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Send a batch to the sink once; return the part of it that must be sent again."""
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
        left = sorted(again | outcome.refused.keys())
        if left and left[0] in outcome.refused:  # else it waits for those in front of it
            number, error = batch[left[0]][0], outcome.refused[left[0]]
            raise _not_for_kafka(number, error) from error
        return [batch[at] for at in left]


def _not_for_kafka(number: int, error: BaseException) -> ConfigurationError:
    return ConfigurationError(
        f"record id={number} cannot be sent, and is kept: {error}. Only the program "
        f"that wrote it can; or give --raw; or discard it: leaderq journal truncate --to {number}"
    )
