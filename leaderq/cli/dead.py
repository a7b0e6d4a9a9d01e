"""``leaderq dead``: shows the letters about records that a career could not handle, and sends the
records back to where they came from.
"""

from __future__ import annotations

import getpass
import re
import signal
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from leaderq.admin.text import cut, harmless, harmless_lines, iso, local
from leaderq.base import clock, host
from leaderq.cli.connecting import (
    ONE_CAREER,
    connected,
    known_career,
    named_career,
    open_session,
)
from leaderq.cli.options import CONNECTION, JSON, Given, letters_with_error, number, switch, verb
from leaderq.cli.output import conclude, json_value, quiet, say, write_json, write_rows
from leaderq.cli.topics import check_topics
from leaderq.config import Section
from leaderq.errors import ConfigurationError, CorruptRecord, KafkaError, NoNode

# The Kafka client takes half a second to import, which --help should not.
if TYPE_CHECKING:
    from leaderq.kafka.clients.producer import Message
    from leaderq.kafka.dead_letters.format import DeadLetter
    from leaderq.kafka.dead_letters.replay import DeadLetterFilter, DeadLetterReplay
    from leaderq.kafka.dead_letters.topic import DeadLetterReader
    from leaderq.kafka.record import Record

_SETTINGS = (ONE_CAREER, Section.CAREER, Section.KAFKA, *CONNECTION)
_TOPIC = click.Option(
    ["--topic"],
    metavar="TOPIC",
    help="topic of the letters; default: the one its leader last reported, else CAREER-dead",
)
_ERROR = letters_with_error("error class or text")
_ORIGIN = click.Option(["--origin"], metavar="TOPIC", help="only letters about records of TOPIC")
_ORIGIN_FORMAT = "{topic}-{partition}@{offset}"
_LETTER = re.compile(r"([0-9]{1,10}):([0-9]{1,19})")
_PLACE = re.compile(r"[A-Za-z0-9._-]+-[0-9]{1,10}@[0-9]{1,19}")
_WIDEST_ERROR = 100


def _as_place(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, int]:
    found = _LETTER.fullmatch(value)
    if found is None:
        raise click.BadParameter(
            f"{value!r} is not PARTITION:OFFSET, such as 0:41; leaderq dead ls lists both",
            ctx,
            param,
        )
    return int(found[1]), int(found[2])


@verb(
    _TOPIC,
    _ERROR,
    _ORIGIN,
    switch("--pending", help="only letters that no replay has sent back yet"),
    number("--limit", "show N letters at most, the oldest of each partition first"),
    JSON,
    *_SETTINGS,
)
def ls(given: Given) -> None:
    """List the letters that are on the dead-letter topic now.

    ORIGIN is the record that could not be handled (topic-partition@offset); TIME is when it was set
    aside. REPLAYED says whether leaderq dead replay has sent the record back; if the record fails
    again, it gets another letter.

    \b
    Examples:
      leaderq dead ls --career ad-billing --pending --error timeout
      leaderq dead ls --career ad-billing --json | jq -r .error | sort | uniq -c
    """
    with _reader(given) as reader:
        rows = (row for row in _rows(given, reader) if not (given.pending and row["replayed"]))
        found: Any = islice(rows, given.limit)
        if not given.as_json:
            found = sorted(found, key=lambda row: (row["partition"], row["offset"]))
        kind = "of that kind " if given.error or given.origin or given.pending else ""
        write_rows(
            found,
            given.as_json,
            f"no dead letters {kind}on topic {reader.topic!r}",
            columns=("PARTITION", "OFFSET", "TIME", "ORIGIN", "ATTEMPTS", "REPLAYED", "ERROR"),
            row=_cells,
            spare={"REPLAYED": 3, "TIME": 2, "ATTEMPTS": 1},
        )


@verb(
    _TOPIC,
    switch("--raw", help="write only the bytes of the record's value to standard output"),
    JSON,
    click.Argument(["place"], callback=_as_place, metavar="PARTITION:OFFSET"),
    *_SETTINGS,
)
def show(given: Given) -> None:
    """Show one letter: what happened, and the record with key, value and all headers.

    Values that are not UTF-8 text are shown in hexadecimal; in JSON as {"base64": ...}.

    \b
    Examples:
      leaderq dead show --career ad-billing 0:41
      leaderq dead show --career ad-billing 0:41 --raw > order.bin
    """
    with _reader(given) as reader:
        record = reader.one(*given.place)
    if given.raw:
        click.echo(record.value or b"", nl=False)
        return
    try:
        said = _letter(record)
    except CorruptRecord as exc:
        say(str(exc))
        said = _foreign(record)
    if given.as_json:
        headers = [{"name": name, "value": json_value(value)} for name, value in record.headers]
        values = {"key": json_value(record.key), "value": json_value(record.value)}
        write_json({**said, **values, "headers": headers})
        return
    if origin := said.get("origin"):
        said["origin"] = _ORIGIN_FORMAT.format(**origin)
    for name, value in said.items():
        click.echo(f"{name:<10}{'-' if value is None else harmless_lines(str(value))}")
    click.echo("headers")
    for name, value in record.headers:
        click.echo(f"  {harmless(name)}: {_shown(value)}")
    click.echo(f"key       {_shown(record.key)}\nvalue\n{_shown(record.value)}")


@verb(
    _TOPIC,
    _ERROR,
    _ORIGIN,
    click.Option(
        ["--letter", "letters"],
        callback=lambda ctx, param, texts: frozenset(_as_place(ctx, param, one) for one in texts),
        multiple=True,
        metavar="PARTITION:OFFSET",
        help="only this letter; repeatable",
    ),
    number(
        "--rate",
        "send N letters a second at most; 0 is as fast as Kafka takes them",
        least=0.0,
        default=100.0,
    ),
    click.Option(
        ["--to"], metavar="TOPIC", help="send all records to TOPIC, not to where they came from"
    ),
    switch("--from-start", help="forget what was replayed before, and begin again"),
    switch("--dry-run", help="say what would be sent where, and change nothing"),
    switch("--yes", help="really send; needed unless it is a dry run"),
    JSON,
    *_SETTINGS,
)
def replay(given: Given) -> None:
    """Send the records of dead letters back to the topics they came from, once each, in the order
    of the letters.

    Key, value and headers are kept; headers leaderq-replayed-* are added. A record goes to the
    partition it was read from. If that partition is gone, or with --to, it goes to the one that
    Java's and Python's producers choose for its key. The letters stay where they are. Letters left
    out by --error, --origin or --letter remain for a later replay.

    Every group that reads those topics gets the records again, also groups that have handled them.
    If that is wrong, send the records to another topic with --to, and let the career read that
    topic.

    If a replay was interrupted or killed, run it again: it continues where it stopped. It commits
    its progress (as offsets of the group CAREER-dead-replay) in one transaction with the records,
    so readers of committed records see no record twice. A second replay ends the first one.

    \b
    Examples:
      leaderq dead replay --career ad-billing --error timeout --dry-run
      leaderq dead replay --career ad-billing --letter 0:41 --yes
      leaderq dead replay --career ad-billing --to ad-billing-again --yes
    """
    settings = given.settings
    career = named_career(settings)
    if not (given.dry_run or given.yes):
        raise ConfigurationError(
            "a replay sends records to topics that careers read; look with --dry-run, then give"
            " --yes"
        )
    check_topics([given.to] if given.to is not None else [])  # an empty one would be no --to
    quiet()
    # As Ctrl-C: an open transaction is aborted rather than left to the broker, and the exit code
    # says that the replay is not complete.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from leaderq.kafka.dead_letters.replay import DeadLetterFilter, DeadLetterReplay

    topic = _letters_topic(given)
    if given.to == topic:
        raise ConfigurationError(
            f"--to {topic!r} is the topic of the letters, where the records would be no letters;"
            " name another one, or leave --to out"
        )
    work = DeadLetterReplay(
        settings.kafka,
        topic,
        career,
        security=settings.kafka_security,
        timeout_s=settings.connect_timeout_s,
        selection=DeadLetterFilter(given.error, given.origin, given.letters),
        from_start=given.from_start,
        rate_per_s=given.rate,
        to=given.to,
    )
    with work:
        try:
            if given.dry_run:
                write_rows(work.preview(), given.as_json, said=_resend)
            else:
                work.run(clock.sleep)
        finally:
            _sum_up(work, given)


@verb(
    click.Option(
        ["--at", "places"],
        multiple=True,
        required=True,
        metavar="TOPIC-PARTITION@OFFSET",
        help="the record, as the log and leaderq status name it; repeatable",
    ),
    number("--timeout-s", "how long to wait for the leader", least=0.1, default=60.0),
    switch("--yes", help="really ask; the record is not handled"),
    *_SETTINGS,
)
def bury(given: Given) -> None:
    """Pass over a record that holds the work up, or that fails the term again and again.

    The leader does so when the record fails the next time: it sets the record aside as a dead
    letter if the career has a topic for these, else it skips the record with a warning. leaderq
    history shows who asked. If the leader does not do it in time (because the record does not fail
    any more, or nobody leads), the request is taken back, and the exit code is 1. Ctrl-C and
    SIGTERM take it back, too.

    \b
    Examples:
      leaderq dead bury --career ad-billing --at clicks-0@41 --yes
    """
    from leaderq.election.layout import Layout
    from leaderq.kafka.handling import burials

    for place in given.places:
        if not _PLACE.fullmatch(place):
            raise ConfigurationError(
                f"--at {place!r} is not TOPIC-PARTITION@OFFSET, such as clicks-0@41"
            )
    if not given.yes:
        raise ConfigurationError(
            f"the career will not handle {', '.join(given.places)}; give --yes if that is meant"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no request stays unattended
    with connected(given) as session:
        path = Layout(given.settings.root, known_career(session, given.settings)).burials
        late, until_s = list(given.places), clock.now_s() + given.timeout_s
        try:
            for place in given.places:
                burials.ask(session, path, place, _me())
            for place in given.places:
                if burials.wait_until_done(session, path, place, until_s - clock.now_s()):
                    late.remove(place)
        finally:
            for place in late:
                burials.take_back(session, path, place)
    for place in given.places:
        say(f"{place} {'was not let pass' if place in late else 'was let pass'}")
    if late:
        raise KafkaError(
            f"the leader did not come to {', '.join(late)} within {given.timeout_s:g} s, and the"
            " request is taken back; does it hold the work up (leaderq status)?"
        )


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):  # of a container without a list of users
        user = "somebody"
    return f"{user}@{host.name()}"


def _sum_up(work: DeadLetterReplay, given: Given) -> None:
    """Write the last line, also for a replay that was interrupted."""
    left_out, unseen = work.remaining()
    verb = "would be replayed" if given.dry_run else "replayed"
    about = "up to " if unseen else ""
    left = f", {left_out} of them not selected" if left_out else ""
    conclude(
        f"{work.sent} {verb}; {work.foreign} skipped, not written by leaderq;"
        f" {about}{left_out + unseen} remain{left}",
        given.as_json and not given.dry_run,
        replayed=work.sent,
        skipped=work.foreign,
        left_out=left_out,
        remain=left_out + unseen,
    )


def _letters_topic(given: Given) -> str:
    """Return the topic of the career's letters: the one that is given, else the one that its leader
    published last, else the career's name with ``-dead``. Raises what reading from ZooKeeper
    raises.
    """
    if given.topic is not None:
        check_topics([given.topic])
        return str(given.topic)
    from leaderq.election.layout import Layout
    from leaderq.kafka.consuming.report import decode
    from leaderq.kafka.handling.on_error import dead_letter_topic

    career, published = named_career(given.settings), None
    path = Layout(given.settings.root, career).progress
    with open_session(given.settings) as session:
        try:
            published = decode(session.get(path)[0], path=path).dead_letters
        except NoNode:
            pass
    found = published or dead_letter_topic(career)
    check_topics([found])
    return found


def _reader(given: Given) -> DeadLetterReader:
    settings = given.settings
    career = named_career(settings)
    quiet()
    from leaderq.kafka.dead_letters.replay import replay_group
    from leaderq.kafka.dead_letters.topic import DeadLetterReader

    return DeadLetterReader(
        settings.kafka,
        _letters_topic(given),
        group=replay_group(career),
        security=settings.kafka_security,
        timeout_s=settings.connect_timeout_s,
    )


def _rows(given: Given, reader: DeadLetterReader) -> Iterator[dict[str, Any]]:
    from leaderq.kafka.dead_letters.replay import DeadLetterFilter, replay_progress

    selection = DeadLetterFilter(given.error, given.origin)
    done = replay_progress(reader)
    for record in reader.read():
        try:
            row = _letter(record, selection)
        except CorruptRecord:
            row = {} if given.error or given.origin else _foreign(record)
        if row:
            yield {**row, "replayed": record.offset in done[record.partition]}


def _letter(record: Record, selection: DeadLetterFilter | None = None) -> dict[str, Any]:
    """The facts about a letter, for JSON, without key, value and headers; empty if ``selection``
    does not contain the letter.
    """
    from leaderq.kafka.dead_letters.format import read_dead_letter

    letter = read_dead_letter(record)
    if selection is not None and letter not in selection:
        return {}
    topic, partition = letter.origin.topic, letter.origin.number
    return {
        "partition": record.partition,
        "offset": record.offset,
        "at": iso(letter.at_ms),
        "origin": {"topic": topic, "partition": partition, "offset": letter.offset},
        "origin_at": iso(letter.timestamp_ms),
        "error": letter.error,
        "text": letter.text,
        "where": letter.where or None,
        "attempts": letter.attempts,
        "term": letter.term,
        "career": letter.career,
        "times": letter.times,
        "size": record.size,
    }


def _foreign(record: Record) -> dict[str, Any]:
    """The known facts about a record that leaderq did not write."""
    place = {"partition": record.partition, "offset": record.offset, "at": iso(record.timestamp_ms)}
    return {**place, "origin": None, "error": None, "size": record.size}


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    at = row["at"] and local(round(datetime.fromisoformat(row["at"]).timestamp() * 1000))
    error, origin = "(not written by leaderq)", None
    if row["origin"] is not None:
        origin = _ORIGIN_FORMAT.format(**row["origin"])
        error = ": ".join(part for part in (row["error"], row["text"]) if part)
    replayed = "yes" if row["replayed"] else None
    where = (row["partition"], row["offset"], at, origin)
    return (*where, row.get("attempts"), replayed, cut(" ".join(error.split()), _WIDEST_ERROR))


def _resend(chosen: tuple[DeadLetter, Message]) -> dict[str, Any]:
    letter, message = chosen
    return {
        "letter": letter.place,
        "to": f"{message.topic}-{message.partition}",
        "key": None if message.key is None else message.key.decode("utf-8", "backslashreplace"),
        "bytes": letter.record.size,
        "times": letter.times,
        "error": letter.error,
    }


def _shown(data: bytes | None) -> str:
    """``data`` as text if a terminal can show it safely, else in hexadecimal."""
    if data is None:
        return "(none)"
    text = json_value(data)
    if isinstance(text, str) and all(letter.isprintable() or letter in "\n\t" for letter in text):
        return text
    return f"(hexadecimal) {data.hex(' ')}"
