"""``leaderq offsets``: shows, sets, writes and reads the offsets at which a career reads on."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from leaderq.base import host
from leaderq.cli.career_loading import choose_career, make_career
from leaderq.cli.connecting import open_session
from leaderq.cli.options import CONNECTION, JSON, Given, switch, verb
from leaderq.cli.output import quiet, require_output, say, write_json, write_rows
from leaderq.config import Section
from leaderq.errors import ConfigurationError, NoNode, RequestRefused

# The Kafka client takes half a second to import, which --help should not.
if TYPE_CHECKING:
    from leaderq.kafka.declaration import Declaration
    from leaderq.kafka.groups import OffsetAdmin
    from leaderq.kafka.record import Partition
    from leaderq.kafka.stores.offset_store import OffsetStore

_TARGET = click.Argument(["target"], metavar="NAME|MODULE:CLASS")
_YES = switch("--yes", help="really set them; without it, they are only shown")
_SETTINGS = (Section.CAREER, Section.KAFKA, *CONNECTION)
_PLACE = re.compile(r"([A-Za-z0-9._-]+)-([0-9]{1,10})=([0-9]{1,19})")


@dataclass(frozen=True)
class _Career:
    """A career with its offset store, and what is needed to read and set its offsets."""

    declared: Declaration
    admin: OffsetAdmin
    paused: bool

    @property
    def store(self) -> OffsetStore:
        return self.declared.offsets

    @property
    def asked(self) -> tuple[str, Any]:
        return self.admin.address, self.admin.access

    def require_settable(self) -> None:
        """Raise RequestRefused if offsets cannot be set now."""
        if self.admin.is_led and not self.paused:
            name = self.declared.name
            raise RequestRefused(
                f"somebody leads {name!r} and reads; pause it first: leaderq pause --career {name}"
            )
        from leaderq.kafka.stores.offset_store import errors_of

        with errors_of(self.store, "asked whether its offsets can be set"):
            self.store.require_settable(self.admin)


@contextmanager
def _opened(given: Given) -> Iterator[_Career]:
    from leaderq.election import Observer
    from leaderq.election.layout import Layout
    from leaderq.kafka.assembly import access_for, topics_of
    from leaderq.kafka.career import KafkaCareer
    from leaderq.kafka.declaration import check, declaration_of
    from leaderq.kafka.groups import Deployment, OffsetAdmin
    from leaderq.kafka.stores import open_store
    from leaderq.kafka.stores.offset_store import StoreContext, errors_of

    quiet()
    chosen = choose_career(given, given.target)
    name, settings = chosen.name, chosen.configuration.settings
    made = make_career(chosen.kind, chosen.target)
    if not isinstance(made, KafkaCareer):
        raise ConfigurationError(f"{given.target} drains no topics, so it has no offsets")
    made._take(settings)  # its topics may be among its own options
    declared = declaration_of(made, name, settings)
    check(declared, made._problems(declared))
    access, layout = access_for(declared, settings), Layout(settings.root, name)
    topics = topics_of(declared, settings.kafka, access)
    with open_session(settings) as session:
        try:
            version = session.get(layout.term)[1].version
        except NoNode:
            version = None
        view = Observer(session, name, root=settings.root).view()
        context = StoreContext(
            name,
            settings.root,
            declared.where,
            layout.offsets,
            session,
            load_offsets=made.load_offsets,
            make_producer=_no_producer,
        )
        note = f"set by {host.name()}{Deployment.of(session, settings.root).mark}"
        group = settings.kafka, declared.group, name, access, note
        admin = OffsetAdmin(*group, topics, layout.term, version, view.leader is not None)
        with errors_of(declared.offsets, "being attached to its career"):
            open_store(declared.offsets, context)
        yield _Career(declared, admin, view.paused)


def _no_producer() -> Any:
    raise ConfigurationError("offsets are set without a transaction")


@verb(_TARGET, JSON, *_SETTINGS)
def show(given: Given) -> None:
    """Show from which offset a career continues in each partition, wherever its offsets are
    kept.

    \b
    Examples:
      leaderq offsets show billing:AdBilling
    """
    with _opened(given) as career:
        ends = _bounds(career)
        stored = _stored(career)
        rows = [
            {
                "topic": where.topic,
                "partition": where.number,
                "offset": stored.get(where),
                "first": first,
                "end": end,
                "lag": None if where not in stored else max(0, end - stored[where]),
            }
            for where, (first, end) in sorted(ends.items())
        ]
    write_rows(rows, given.as_json, "the career's topics have no partitions")


@verb(
    _TARGET,
    click.Option(
        ["--at", "places"],
        multiple=True,
        metavar="TOPIC-PARTITION=OFFSET",
        help="the offset of the next record to read there; repeatable",
    ),
    click.Option(
        ["--to"],
        type=click.Choice(["earliest", "latest"]),
        help="all partitions: the first record that is there, or the end",
    ),
    _YES,
    JSON,
    *_SETTINGS,
)
def set(given: Given) -> None:
    """Set where a career reads on. Refused while somebody leads, unless the career is paused
    (leaderq pause). If its offsets are in ZooKeeper, refused until all candidates are stopped.

    A paused leader cannot commit over what was set: it joins the group again, and reads on from
    there. The records that it has in hand are not committed.

    \b
    Examples:
      leaderq offsets set billing:AdBilling --at clicks-0=42 --yes
      leaderq offsets set billing:AdBilling --to earliest --yes
    """
    if bool(given.places) is bool(given.to):
        raise ConfigurationError("say where to read on: --at TOPIC-PARTITION=OFFSET, or --to")
    wanted = _once(map(_parsed, given.places))
    with _opened(given) as career:
        if given.to is not None:
            at = 0 if given.to == "earliest" else 1
            wanted = {where: bounds[at] for where, bounds in _bounds(career).items()}
        _put(given, career, wanted)


@verb(
    _TARGET,
    click.Argument(["when"], metavar="TIME"),
    _YES,
    JSON,
    *_SETTINGS,
)
def to_time(given: Given) -> None:
    """Let a career read on, in each partition, at the first record that is not older than TIME; if
    there is none, at the end. TIME is like 2026-11-23T08:00 (local time) or
    2026-11-23T08:00:00+00:00.

    \b
    Examples:
      leaderq offsets to-time billing:AdBilling 2026-11-23T08:00 --yes
    """
    try:
        at_ms = int(datetime.fromisoformat(given.when).timestamp() * 1000)
    except ValueError as exc:
        raise ConfigurationError(f"{given.when!r} is not a time such as 2026-11-23T08:00") from exc
    with _opened(given) as career:
        _put(given, career, _bounds_at(career, at_ms))


@verb(_TARGET, *_SETTINGS)
def export(given: Given) -> None:
    """Write the offsets of a career as lines of JSON, which leaderq offsets import reads.

    \b
    Examples:
      leaderq offsets export billing:AdBilling > offsets.jsonl
    """
    require_output()
    with _opened(given) as career:
        for where, at in sorted(_stored(career).items()):
            if where.topic in career.admin.topics:  # others may share the group, or have used it
                write_json({"topic": where.topic, "partition": where.number, "offset": int(at)})


@verb(
    _TARGET,
    click.Argument(
        ["file"],
        type=click.Path(exists=True, dir_okay=False, readable=True, allow_dash=True),
        default="-",
        metavar="[FILE]",
    ),
    _YES,
    JSON,
    *_SETTINGS,
)
def import_(given: Given) -> None:
    """Set the offsets of a career to those that leaderq offsets export has written, for instance to
    move the career to another store. Refused in the same cases as leaderq offsets set.

    \b
    Examples:
      leaderq offsets import billing:AdBilling offsets.jsonl --yes
    """
    if given.file == "-" and sys.stdin is None:
        raise ConfigurationError("standard input is closed; name a FILE")
    with click.open_file(given.file, encoding="utf-8-sig", errors="replace") as lines:
        wanted = _once(_exported(lines))
    if not wanted:
        raise ConfigurationError(f"{given.file!r} holds no offsets, so there is nothing to set")
    with _opened(given) as career:
        _put(given, career, wanted)


def _exported(lines: Iterable[str]) -> Iterator[tuple[Partition, int]]:
    from leaderq.kafka.record import Partition

    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            where, at = Partition(row["topic"], row["partition"]), row["offset"]
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise _not_exported(number, line) from exc
        if [type(each) for each in (*where, at)] != [str, int, int]:
            raise _not_exported(number, line)
        yield where, at


def _not_exported(number: int, line: str) -> ConfigurationError:
    return ConfigurationError(
        f"line {number} is {line[:60]!r}, which leaderq offsets export did not write"
    )


def _parsed(text: str) -> tuple[Partition, int]:
    from leaderq.kafka.record import Partition

    found = _PLACE.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"--at {text!r} is not TOPIC-PARTITION=OFFSET, such as clicks-0=42"
        )
    topic, number, offset = found.groups()
    return Partition(topic, int(number)), int(offset)


def _once(pairs: Iterable[tuple[Partition, int]]) -> dict[Partition, int]:
    """Return the offset of each partition; refuse two different ones for the same partition."""
    found: dict[Partition, int] = {}
    for where, at in pairs:
        if (first := found.setdefault(where, at)) != at:
            raise ConfigurationError(f"{where} is given two offsets, {first} and {at}; give one")
    return found


def _put(given: Given, career: _Career, wanted: Mapping[Partition, int]) -> None:
    from leaderq.kafka.stores.offset_store import errors_of

    career.require_settable()  # before anything is shown, as if it could be done
    bounds = _bounds(career)
    if not wanted:
        what = f"the topics of {career.declared.where} have no partitions"
        raise RequestRefused(f"{what}, so there is nothing to set")
    if unknown := sorted(wanted.keys() - bounds.keys()):
        named = ", ".join(map(str, unknown))
        raise ConfigurationError(f"{career.declared.where} reads no partition {named}")
    outside = [
        f"{where}={at} (there are {bounds[where][0]} to {bounds[where][1]})"
        for where, at in sorted(wanted.items())
        if not bounds[where][0] <= at <= bounds[where][1]
    ]
    if outside:
        raise ConfigurationError(f"no record is, or will be, at {', '.join(outside)}")
    stored = _stored(career)
    rows = [
        {
            "topic": where.topic,
            "partition": where.number,
            "before": stored.get(where),
            "offset": int(at),
        }
        for where, at in sorted(wanted.items())
    ]
    if given.yes:
        with errors_of(career.store, "setting offsets"):
            career.store.put(career.admin, wanted)
    write_rows(rows, given.as_json)
    say("set" if given.yes else "nothing was set; give --yes to do it")


def _stored(career: _Career) -> dict[Partition, int]:
    from leaderq.kafka.stores.offset_store import checked_offsets, errors_of

    with errors_of(career.store, "looking up offsets"):
        found = career.store.look_up(career.admin)
    return checked_offsets(found, f"look_up() of the offset store {career.store.word!r}")


def _bounds(career: _Career) -> dict[Partition, tuple[int, int]]:
    from leaderq.kafka.topics import bounds

    address, access = career.asked
    return bounds(address, career.admin.topics, **access)


def _bounds_at(career: _Career, at_ms: int) -> dict[Partition, int]:
    from leaderq.kafka.topics import offsets_at

    address, access = career.asked
    return offsets_at(address, career.admin.topics, at_ms, **access)
