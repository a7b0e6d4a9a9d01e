"""``leaderq analyze``: how the keys of a stream repeat, and what coalescing would save on it."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from leaderq.cli.options import JSON, Given, number, verb
from leaderq.cli.output import harmless, quiet, say, write_json, write_table
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.coalescing.analysing import Analysis, Repeats, RequestLines, Saving


@verb(
    click.Argument(["file"], metavar="FILE"),
    click.Option(
        ["--key"], metavar="FIELD", help="FILE is an access log; the field whose repetition counts"
    ),
    click.Option(
        ["--service-s"],
        type=click.FloatRange(min=0, min_open=True),
        multiple=True,
        default=(0.1, 1.0, 10.0),
        show_default=True,
        metavar="SECONDS",
        help="how long one run takes; repeatable",
    ),
    number("--rate", "simulate N requests a second, evenly, not at the stream's times", least=1e-6),
    number("--waiters", "how many may wait for a key", least=0, default=1),
    JSON,
)
def analyze(given: Given) -> None:
    """Tell whether coalescing pays on the requests in FILE (- for standard input; .gz is unpacked).

    Each line of FILE is a key, or a key, a tab and the time of the request: seconds since the
    epoch, or ISO 8601. With --key, FILE is an access log of Apache or nginx (fields: client, ident,
    user, time, request, method, path, protocol, status, bytes, referer, agent). What coalescing
    saves is simulated with the automaton of the coordinators, for each time that a run may take.

    Duplication is "none" if no key repeats, "high" if 5 % of the requests or more repeat a key
    nearby, else "sparse". Nearby means within 100 requests, or, in the table, while another request
    for that key is worked on. Memory is bounded. Unusable lines are counted on standard error.

    \b
    Examples:
      leaderq analyze access.log.gz --key path --service-s 0.5 --service-s 5
      jq -r '[.user.id, .at] | @tsv' events.jsonl | leaderq analyze -
      cut -f3 clicks.tsv | leaderq analyze - --rate 2000
    """
    quiet()
    from leaderq.coalescing.analysing import (
        ACCESS_LOG_RESOLUTION_S,
        RequestLines,
        access_log,
        analyse,
        key_and_time,
    )

    is_log = given.key is not None
    with _opened(given.file) as stream:
        lines = RequestLines(stream, access_log(given.key) if is_log else key_and_time)
        found = analyse(
            lines,
            services_s=given.service_s,
            waiters=given.waiters,
            rate=given.rate,
            resolution_s=ACCESS_LOG_RESOLUTION_S if is_log else 0.0,
        )
    _check(given.file, lines, found)
    if given.as_json:
        write_json(_as_json(lines, found))
    else:
        _show(found)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """The bytes of a file, or of standard input.

    :raises ConfigurationError: it cannot be read; also later, while it is being read.
    """
    try:
        if file == "-":
            if sys.stdin is None:
                raise ConfigurationError("FILE is -, and standard input is closed")
            yield sys.stdin.buffer
        elif file.endswith(".gz"):
            with gzip.open(file) as unpacked:
                yield cast("BinaryIO", unpacked)
        else:
            with Path(file).open("rb") as stream:
                yield stream
    except FileNotFoundError as exc:
        raise ConfigurationError(
            f"there is no file {file!r}; give its path, or - for standard input"
        ) from exc
    except BrokenPipeError:
        raise
    except (OSError, EOFError, zlib.error) as exc:
        reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        raise ConfigurationError(f"{file!r} cannot be read: {reason}") from exc


def _check(file: str, lines: RequestLines, found: Analysis) -> None:
    """Report the unusable lines; refuse input without any usable one."""
    if bad := lines.undecodable + lines.unusable:
        kinds = f"{lines.undecodable} undecodable, {lines.unusable} unusable"
        say(f"{bad} of {lines.lines} lines left out ({kinds}):")
        for complaint in lines.complaints:
            say(f"  {complaint}")
        if bad > len(lines.complaints):
            say(f"  and {bad - len(lines.complaints)} more")
        if not lines.requests:
            raise ConfigurationError(
                f"no line of {file!r} can be used; give lines of a key and, after a tab, a time, "
                "or an access log with --key FIELD"
            )
    if not lines.requests:
        say(f"no requests in {file!r}")
    if found.late:
        say(f"{found.late} requests were too far out of order; they count as the one before them")
    if found.untimed and found.savings:
        say(f"{found.untimed} requests have no time, and were left out of the simulation")
    if lines.requests and not found.savings:
        say(
            "no saving is shown, because nothing says when requests come; add a time after a tab,"
            " or give --rate N"
        )


def _show(found: Analysis) -> None:
    for name, value in _facts(found):
        click.echo(f"{name:<23} {value}")
    hottest = [(count, harmless(key[:80]) or "(empty)") for key, count in found.repeats.hottest]
    if hottest:
        click.echo("")
        write_table(("REQUESTS", "HOTTEST KEYS"), hottest)
    if found.savings:
        click.echo("")
        headings = ("ONE RUN TAKES", "RUNS", "SAVED", "SHARE", "WAITED", "MEAN WAIT")
        write_table((*headings, "KEYS AT ONCE", "DUPLICATION"), map(_row, found.savings))


def _facts(found: Analysis) -> Iterator[tuple[str, object]]:
    repeats, least = found.repeats, found.repeats.minimum_distance
    near = f"{repeats.near} ({repeats.near_share:.1%} of all requests), within {repeats.window}"
    yield "requests", repeats.requests
    yield "keys", f"{repeats.keys}{' at most' if repeats.forgotten else ''}"
    yield "repeats", repeats.repeats
    yield "minimum repeat distance", "-" if least is None else least
    yield "near repeats", near
    yield "duplication", f"{repeats.duplication.value} (within {repeats.window} requests)"
    if found.rate is not None and found.span_s is not None:
        yield "rate", f"{found.rate:.4g} requests/s over {found.span_s:.0f} s"


def _row(one: Saving) -> tuple[Any, ...]:
    saved = (f"{one.service_s:g} s", one.runs, one.declined, f"{one.share:.1%}")
    waited = (one.blocked, f"{one.waited_s:.3g} s", one.keys_at_once)
    return (*saved, *waited, one.duplication.value)


def _as_json(lines: RequestLines, found: Analysis) -> dict[str, Any]:
    whole = asdict(found)
    del whole["repeats"]
    whole["savings"] = [_with(one, "runs", "share") for one in found.savings]
    read = {"lines": lines.lines, "undecodable": lines.undecodable, "unusable": lines.unusable}
    return {**read, **_with(found.repeats, "near_share"), **whole}


def _with(found: Repeats | Saving, *properties: str) -> dict[str, Any]:
    derived = {name: getattr(found, name) for name in properties}
    return {**asdict(found), **derived, "duplication": found.duplication.value}
